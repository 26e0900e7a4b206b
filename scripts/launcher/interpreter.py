"""How a training process is started: in its framework's own Python, after what the site has to set up."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from contracts.errors import ConfigError
from settings.systems import EnvironmentSource, System

ENVIRONMENTS = "environments"
SETUP_WORDS = "setup of the system file failed: "
SETUP_FAILED = f'echo "{SETUP_WORDS}$BASH_COMMAND" >&2'


def interpreter_file(name: str, source: EnvironmentSource) -> str | None:
    """The file, relative to the project, in which a rule notes the interpreter it made; None where none is made."""
    return f"{ENVIRONMENTS}/{source.kind}-{name}.txt" if source.kind in ("venv", "conda") else None


def training_command(system: System, environment: str, script: Sequence[str], root: Path) -> list[str]:
    """The command that runs `script` (a file and its arguments) in `environment`.

    Raises ConfigError where the interpreter is not there (yet).
    """
    source = system.environment_source(environment)
    python = [*_interpreter(environment, source, root), *script]
    python += ["--wrapped"] if source.kind == "apptainer" else []
    setup = environment_setup(system, environment)
    if not setup:
        return python
    # exec: signals, and the watch over the parent process, must reach the training process itself.
    lines = ["set -eE", f"trap '{SETUP_FAILED}' ERR", *setup, "trap - ERR", 'exec "$@"']
    return ["bash", "-c", "\n".join(lines), "training", *python]


def environment_setup(system: System, environment: str) -> list[str]:
    """Shell lines that come before anything of an environment on a system."""
    return [*system.setup, *system.environment_source(environment).setup]


def interpreter_folder(system: System, environment: str, root: Path) -> Path | None:
    """Where the environment's interpreter lies, with the programs that its packages brought; None if only PATH knows.

    Raises ConfigError where the interpreter is not there (yet).
    """
    python = Path(_interpreter(environment, system.environment_source(environment), root)[0])
    return python.parent if python.is_absolute() else None


def _interpreter(environment: str, source: EnvironmentSource, root: Path) -> list[str]:
    if source.kind == "workflow":
        return [sys.executable]
    if source.kind == "python":
        return [source.python]
    if source.kind == "apptainer":
        return ["apptainer", "exec", *source.arguments, source.image, source.python]
    note = root / str(interpreter_file(environment, source))
    try:
        # Relative to the project, if it lies in it; joined to an absolute path the root has no say.
        python = str(root / note.read_text(encoding="utf-8").strip())
    except OSError:
        raise ConfigError(
            f"{note.relative_to(root)} is missing: the environment {environment} is not made yet"
        ) from None
    if not Path(python).is_file():
        raise ConfigError(
            f"{note.relative_to(root)}: {python} is gone; delete this file, and the next call makes {environment} anew"
        )
    return [python]
