"""Install requirements files into an environment: with uv, so that environments share packages on disk, else with pip.

Only the standard library is imported here: this runs where nothing is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from installation.install_plan import (
    Plan,
    make_plan,
    names_of,
    plan_words,
    progress_words,
    size_words,
    tells_of_fetching,
)
from installation.pip_settings import UvSettings, read_pip_settings, to_uv
from installation.pip_words import pip_failure_words
from installation.sharing import choose_sharing, disk_use, free_bytes
from installation.steps import run_step
from installation.uv_words import unsupported_options, uv_failure_words

INSTALLER_VARIABLE = "SCALING_EVAL_INSTALLER"
CHECKOUT = Path(__file__).resolve().parents[2]
SIZES_LIMIT_S = 60.0
WHOLENESS = Path(__file__).with_name("wholeness.py")
# uv lists every package that it installed: a screen of lines for a person.
_LISTED = re.compile(r"^(?:\x1b\[[0-9;]*m)* (?:\x1b\[[0-9;]*m)*[-+~](?:\x1b\[[0-9;]*m)* \S.*\n", re.MULTILINE)


class NotInstalled(Exception):
    """A step of the installation failed; the message names it, its output says why."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, the requirements files that go into it, and the descriptor of a lock on its folder."""

    folder: Path
    files: tuple[str, ...]
    lock: int

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


def install(environment: Environment, uv_python: Path, uv_file: Path | None = None) -> None:
    """Install with the uv of `uv_python`, which is put there from the requirements file `uv_file` where it is missing.

    Where uv cannot do it as pip would, or SCALING_EVAL_INSTALLER=pip says so, pip does. Raises NotInstalled.
    """
    started_s = time.monotonic()
    asked = os.environ.get(INSTALLER_VARIABLE) or "uv"
    if asked not in ("uv", "pip"):
        raise NotInstalled(f"{INSTALLER_VARIABLE}={asked}: name uv or pip, or leave it out.")
    uv = [str(uv_python), "-m", "uv"]
    reason = f"as {INSTALLER_VARIABLE} says" if asked == "pip" else _without_uv(uv, uv_python, uv_file)
    settings = UvSettings()
    if not reason:
        settings, reason = _settings(environment)
    if not reason:
        reason = _install_with_uv(uv, environment, settings)
    if reason:
        _install_with_pip(environment, reason)
    use = disk_use(environment.folder)
    shared = f"; another {size_words(use.shared_bytes)} it shares with other environments" if use.shared_bytes else ""
    _tell(
        f"{names_of(environment.files)}: installed in {time.monotonic() - started_s:.0f} s. The environment takes "
        f"{size_words(use.own_bytes)} of disk{shared}."
    )


def _without_uv(uv: Sequence[str], uv_python: Path, uv_file: Path | None) -> str:
    """Return why uv cannot be had, after pip has tried to get it; nothing where it is there."""
    if _version(uv) and (uv_file is None or f"uv=={_version(uv)}" in uv_file.read_text(encoding="utf-8").split()):
        return ""
    if uv_file is None:
        return "since this Python has no uv"
    # pip gets it, and so from where the site has its packages.
    command = [str(uv_python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "-r", str(uv_file)]
    got = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if got.returncode:
        return f"since {uv_file} could not be installed"
    return "" if _version(uv) else "since uv does not start on this machine"


def _version(uv: Sequence[str]) -> str:
    said = subprocess.run([*uv, "--version"], capture_output=True, text=True)
    words = said.stdout.split()
    return words[1] if said.returncode == 0 and len(words) > 1 else ""


def _settings(environment: Environment) -> tuple[UvSettings, str]:
    """Return pip's settings in uv's words, and why uv cannot follow them."""
    try:
        settings = to_uv(read_pip_settings(environment.python), os.environ)
    except (OSError, ValueError) as error:
        return UvSettings(), f"since {error}"
    if settings.obstacles:
        return settings, f"since uv has no counterpart of these settings of pip: {', '.join(settings.obstacles)}"
    return settings, ""


def _install_with_uv(uv: Sequence[str], environment: Environment, settings: UvSettings) -> str:
    """Install, or return why pip is to do it. Raises NotInstalled where pip would fare no better."""
    _tell(f"Installing {names_of(environment.files)} into {_shown(environment.folder)} with uv {_version(uv)} ...")
    sharing = choose_sharing(uv, environment.folder, CHECKOUT, os.environ)
    if sharing.reason_against:
        _tell(f"Note: {sharing.reason_against}.")
    variables = {**settings.variables, **sharing.variables}
    python = ["--python", str(environment.python), *settings.arguments]
    requirements = [word for file in environment.files for word in ("-r", file)]
    command = [*uv, "pip", "install", *python, *requirements]
    # First: where an index tells no hashes, what finds the sizes also fetches the files.
    dry_run = _ask([*command, "--dry-run", "--verbose"], variables)
    if options := unsupported_options(dry_run.stderr):
        return f"since uv does not know what these files say: {', '.join(options)}"
    if dry_run.returncode:
        _fail(dry_run.stderr, environment)
    resolve = [*uv, "pip", "compile", "--quiet", "--format", "pylock.toml", *python, *environment.files]
    lock = _lock(resolve, variables) if tells_of_fetching(dry_run.stderr) else ""
    plan = make_plan(lock, dry_run.stderr)
    _tell(plan_words(plan, free_bytes(environment.folder)))
    _run_uv(command, environment, variables, plan)
    damaged = _damaged(environment)
    if damaged:
        _mend(uv, command, environment, variables, damaged)
    return ""


def _ask(command: Sequence[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=os.environ | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def _lock(command: Sequence[str], variables: dict[str, str]) -> str:
    """Return a resolution with the sizes of files; nothing where it cannot be had in a time that nobody minds."""
    try:
        done = subprocess.run(
            command,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SIZES_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _fail(output: str, environment: Environment) -> None:
    """Raise NotInstalled for what a verbose call of uv printed."""
    kept = "\n".join(line for line in output.splitlines() if not line.startswith(("DEBUG", "TRACE")))
    _tell(kept)
    raise NotInstalled(uv_failure_words(kept, environment.files))


def _run_uv(command: Sequence[str], environment: Environment, variables: dict[str, str], plan: Plan) -> None:
    def still_words(printed: str, seconds: float) -> str:
        doing = progress_words(plan, printed) or "unpacking, linking and compiling"
        return f"Still at it after {seconds:.0f} s: {doing}"

    code, output = run_step(command, environment.lock, variables, still_words, hidden=_LISTED)
    if code:
        raise NotInstalled(uv_failure_words(output, environment.files))


def _damaged(environment: Environment) -> list[str]:
    checked = subprocess.run([str(environment.python), "-I", str(WHOLENESS)], capture_output=True, text=True)
    return checked.stdout.splitlines() if checked.returncode else []


def _mend(
    uv: Sequence[str], command: Sequence[str], environment: Environment, variables: dict[str, str], damaged: list[str]
) -> None:
    """Fetch packages anew that are not whole: a power cut spoils a file of uv's cache, and so of every environment."""
    names = [line.partition(":")[0] for line in damaged]
    _tell(f"Not whole in uv's cache, so they are fetched anew: {', '.join(names)} ({damaged[0]}).")
    _ask([*uv, "cache", "clean", *names], variables)
    again = [word for name in names for word in ("--reinstall-package", name)]
    _run_uv([*command, *again], environment, variables, Plan(len(names), {}))
    if damaged := _damaged(environment):
        raise NotInstalled(f"{names_of(environment.files)} could not be installed: {damaged[0]}; see the disk's health")


def _install_with_pip(environment: Environment, reason: str) -> None:
    _tell(
        f"Installing {names_of(environment.files)} into {_shown(environment.folder)} with pip, {reason}; it shares "
        f"nothing with other environments on disk. {size_words(free_bytes(environment.folder))} are free."
    )
    command = [str(environment.python), "-m", "pip", "install", "--disable-pip-version-check"]
    command += [word for file in environment.files for word in ("-r", file)]
    code, output = run_step(
        command, environment.lock, {}, lambda _printed, seconds: f"Still at it after {seconds:.0f} s"
    )
    if code:
        raise NotInstalled(pip_failure_words(output, environment.files))


def _shown(folder: Path) -> str:
    return str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
