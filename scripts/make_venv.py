"""Make a virtual environment from a requirements file and note its interpreter; all progress goes to the terminal.

The interpreter's path is noted relative to the project where it lies in it, so that a moved checkout finds it again.

Where `envs/<name>.sh` lies beside `envs/<name>.txt` it is run afterwards, with the environment's `bin` first on PATH: a
recipe for what pip cannot install as it was released.

The folder is named by a digest of these files, so an environment that jobs may be running in is never touched, and
changing a file back finds the one of before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

from contracts.atomic import replace_when_complete
from contracts.project_files import project_folder
from installation.installer import Environment, NotInstalled, install
from installation.pip_words import pip_failure_words, tells_of_pip
from installation.steps import run_step
from installation.turns import wait_for_turn
from whole_bytecode import remove_damaged
from workloads.child import die_with_parent

ROOT = project_folder()
FINISHED = "installed"  # a file in an environment that was made to its end


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requirements", type=Path, required=True, help="envs/<name>.txt")
    parser.add_argument("--folder", type=Path, required=True, help="where it is, or will be made")
    parser.add_argument("--output", type=Path, required=True, help="file for the interpreter's path")
    args = parser.parse_args()
    # One that outlived its Snakemake would write into the folder of its successor.
    die_with_parent(os.getppid())
    args.folder.parent.mkdir(parents=True, exist_ok=True)
    with args.folder.with_suffix(".lock").open("a") as lock:
        wait_for_turn(lock.fileno(), lock.name, str(args.folder))
        # Not resolve(): an environments/ that is a link belongs to this project all the same.
        folder = args.folder.absolute()
        python = folder / "bin" / "python"
        if (folder / FINISHED).is_file() and python.is_file():
            print(f"{args.requirements}: installed already, in {args.folder}", file=sys.stderr)
        else:
            args.output.unlink(missing_ok=True)
            try:
                make_venv(folder, args.requirements, lock.fileno())
            except NotInstalled as error:
                print(error, file=sys.stderr)
                return 1
            tell_of_others(folder, args.requirements)
        with replace_when_complete(args.output, "w") as file:
            file.write(f"{python.relative_to(ROOT) if python.is_relative_to(ROOT) else python}\n")
    return 0


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
    """Environments are large, and those of an earlier state of the files are nobody's but the user's to delete."""
    others = sorted(str(path) for path in folder.parent.iterdir() if path.is_dir() and path != folder)
    if others:
        print(
            f"{requirements}: of an earlier state of this file, to be deleted once no job runs in them: "
            f"{', '.join(others)}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
