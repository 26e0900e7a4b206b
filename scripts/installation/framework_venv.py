"""Make the virtual environment of frameworks that cannot use the workflow's own, once, and note its interpreter.

The folder is named by a digest of `envs/<name>.txt` and `envs/<name>.sh`, so an environment that jobs may be running in
is never touched, and changing a file back finds the one of before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from contracts.atomic import replace_when_complete
from installation.bytecode import remove_damaged
from installation.installer import Environment, NotInstalled, install
from installation.pip_words import pip_failure_words, tells_of_pip
from installation.steps import run_step
from installation.turns import wait_for_turn

FINISHED = "installed"  # a file in an environment that was made to its end


def provide_venv(requirements: Path, folder: Path, note: Path, root: Path) -> None:
    """Make the environment in `folder`, unless it is there, and write its interpreter's path to `note`.

    The path is relative to the project `root` where the environment lies in it, so that a moved project finds it again.
    Raises NotInstalled.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("a") as lock:
        wait_for_turn(lock.fileno(), lock.name, str(folder))
        # Not resolve(): an environments/ that is a link belongs to this project all the same.
        where = folder.absolute()
        python = where / "bin" / "python"
        if (where / FINISHED).is_file() and python.is_file():
            print(f"{requirements}: installed already, in {folder}", file=sys.stderr)
        else:
            note.unlink(missing_ok=True)
            make_venv(where, requirements, lock.fileno())
            tell_of_others(where, requirements)
        with replace_when_complete(note, "w") as file:
            file.write(f"{python.relative_to(root) if python.is_relative_to(root) else python}\n")


def make_venv(folder: Path, requirements: Path, lock: int) -> None:
    """Make a new environment in `folder` with what the file asks for, in place of one that was not finished.

    lock: the descriptor of the lock on `folder`. Raises NotInstalled.
    """
    try:
        venv.create(folder, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotInstalled(f"{requirements}: could not be installed (no virtual environment: {error})") from error
    install(Environment(folder, (str(requirements),), lock), uv_python=Path(sys.executable))
    recipe = requirements.with_suffix(".sh")
    if recipe.is_file():
        run_recipe(recipe, requirements, folder, lock)
    remove_damaged([folder])
    (folder / FINISHED).touch()


def run_recipe(recipe: Path, requirements: Path, folder: Path, lock: int) -> None:
    """Run `envs/<name>.sh` with the environment's programs first on PATH. Raises NotInstalled."""
    search = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)])

    def still_words(_printed: str, seconds: float) -> str:
        return f"{recipe} is still at work after {seconds:.0f} s"

    code, output = run_step(["bash", str(recipe)], lock, {"PATH": search}, still_words)
    if code and tells_of_pip(output):
        raise NotInstalled(pip_failure_words(output, [str(recipe)]))
    if code:
        raise NotInstalled(f"{requirements}: could not be installed ({recipe.name} ended with {code})")


def tell_of_others(folder: Path, requirements: Path) -> None:
    """Name the environments of earlier states of the file: they are large, and only the user may delete them."""
    others = sorted(str(path) for path in folder.parent.iterdir() if path.is_dir() and path != folder)
    if others:
        print(
            f"{requirements}: of an earlier state of this file, to be deleted once no job runs in them: "
            f"{', '.join(others)}",
            file=sys.stderr,
        )
