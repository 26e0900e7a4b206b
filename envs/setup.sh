# Sourced by ./run and ./test: make .venv and install pinned requirements into it, once.
#
# Programs of .venv are called as modules of its Python (`python -m snakemake`): the first line of the scripts in its bin
# names the folder that it was made in, which is wrong as soon as the checkout is moved.

refuse() {
    echo "$1" >&2
    exit 2
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 </dev/null; }
has_venv() { "$1" -c 'import venv, ensurepip' >/dev/null 2>&1 </dev/null; }
version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null </dev/null; }
# Where a Python itself is installed, whichever virtual environment or link it is called through.
home_of() { "$1" -c 'import os, sys; print(os.path.realpath(sys.base_prefix))' 2>/dev/null </dev/null; }

# check_python: where PYTHON is set, it must be one that can be used, and the one of a .venv that is there already.
# Ends with 2 and one sentence otherwise, and has changed nothing.
check_python() {
    [ -n "${PYTHON:-}" ] || return 0
    local named="PYTHON=$PYTHON" other="name another, or leave PYTHON out" version
    # run and test have left the folder that a relative path starts from.
    case "$PYTHON" in
        /*) ;;
        */*) PYTHON=${OLDPWD:-$PWD}/$PYTHON ;;
    esac
    command -v -- "$PYTHON" >/dev/null || refuse "$named: there is no such program; $other."
    version=$(version_of "$PYTHON") || version=
    [[ "$version" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || refuse "$named is no Python that can be started; $other."
    is_new_enough "$PYTHON" || refuse "$named is Python $version, and 3.11 or newer is needed; $other."
    has_venv "$PYTHON" ||
        refuse "$named has no module venv or ensurepip (Debian and Ubuntu: install python3-venv); $other."
    if .venv/bin/python -c '' >/dev/null 2>&1 && [ "$(home_of .venv/bin/python)" != "$(home_of "$PYTHON")" ]; then
        refuse "$named is Python $version in $(home_of "$PYTHON"), but .venv was made with Python \
$(version_of .venv/bin/python) in $(home_of .venv/bin/python); delete the folder .venv to have it made anew, or leave \
PYTHON out."
    fi
}

python_of_this_machine() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.11 python3.12 python3.13 python; do
        if is_new_enough "$candidate" && has_venv "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "No Python 3.11 or newer with the modules venv and ensurepip was found on PATH." >&2
    echo "Install one (Debian and Ubuntu: python3 and python3-venv), or name it: PYTHON=/path/to/python3 $0" >&2
    return 1
}

# Whether .venv has a Python that finds its own packages: not one whose Python is gone or was replaced by another.
has_packages() { .venv/bin/python -I -c 'import pip' >/dev/null 2>&1; }

# is_installed STAMP WANTED: whether exactly this was installed to its end, and nothing was cut short since.
is_installed() {
    [ -f "$1" ] && [ "$(cat "$1")" = "$2" ] && [ ! -e .venv/unfinished ] && has_packages
}

# install_environment NAME FILE...: install requirements files into .venv, unless exactly these are installed already.
install_environment() {
    local name=$1 stamp wanted
    shift
    stamp=.venv/installed-$name
    # The plugins are installed with them, and change without a new version.
    wanted=$(cat "$@" plugins/pyproject.toml plugins/*/*.py | cksum)
    if is_installed "$stamp" "$wanted"; then
        return
    fi
    local python damaged
    python=$(python_of_this_machine)
    (
        # Two first calls at once: the second waits, then finds everything installed.
        exec 8>>.venv.lock
        "$python" scripts/installation/turns.py 8 .venv.lock .venv
        if is_installed "$stamp" "$wanted"; then
            exit
        fi
        # pip and uv take a package for installed whose installation was cut short.
        if ! has_packages; then
            "$python" -m venv --clear .venv
        elif ! damaged=$(.venv/bin/python -I scripts/installation/wholeness.py); then
            echo "An installation was cut short, so .venv is made anew (${damaged%%$'\n'*})." >&2
            "$python" -m venv --clear .venv
        fi
        touch .venv/unfinished
        .venv/bin/python -E -s scripts/install_packages.py --environment .venv --lock 8 "$@"
        .venv/bin/python -I scripts/whole_bytecode.py .venv
        echo "$wanted" >"$stamp"
        rm .venv/unfinished
    )
}
