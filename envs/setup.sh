# Sourced by ./run and ./test: make .venv and install pinned requirements into it, once.

python_of_this_machine() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13 python; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "No Python 3.11 or newer with the modules venv and ensurepip was found on PATH." >&2
    echo "Install one (Debian and Ubuntu: python3 and python3-venv), or name it: PYTHON=/path/to/python3 $0" >&2
    return 1
}

# install_environment NAME FILE...: install requirements files into .venv, unless exactly these are installed already.
install_environment() {
    local name=$1 stamp wanted
    shift
    stamp=.venv/installed-$name
    wanted=$(cat "$@" | cksum)
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return
    fi
    local python file requirements=()
    python=$(python_of_this_machine)
    for file in "$@"; do requirements+=(-r "$file"); done
    (
        # Two first calls at once: the second waits, then finds everything installed.
        exec 8>>.venv.lock
        "$python" -c 'import fcntl; fcntl.flock(8, fcntl.LOCK_EX)'
        if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
            exit
        fi
        # No pip in it: a first installation that was interrupted, or a Python that is gone.
        .venv/bin/python -c 'import pip' >/dev/null 2>&1 || "$python" -m venv --clear .venv
        echo "Installing $* into .venv (once; a few minutes) ..." >&2
        .venv/bin/python -m pip install --disable-pip-version-check --quiet "${requirements[@]}"
        echo "$wanted" >"$stamp"
    )
}
