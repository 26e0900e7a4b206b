"""Make a virtual environment from a requirements file and note its interpreter; all progress goes to the terminal.

Where `envs/<name>.sh` lies beside `envs/<name>.txt` it is run after pip, with the environment's `bin` first on PATH: a
recipe for what pip cannot install as it was released.

The folder is named by a digest of these files, so an environment that jobs may be running in is never touched, and
changing a file back finds the one of before.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

from atomic import replace_when_complete
from launching.child import die_with_parent

FINISHED = "installed"  # a file in an environment that was made to its end


class NotInstalled(Exception):
    """A step of the installation failed; the message names it, its output says why."""


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
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = args.folder.resolve()
        python = folder / "bin" / "python"
        if (folder / FINISHED).is_file() and python.is_file():
            print(f"{args.requirements}: installed already, in {args.folder}", file=sys.stderr)
        else:
            args.output.unlink(missing_ok=True)
            try:
                make_venv(folder, args.requirements, lock.fileno())
            except NotInstalled as error:
                print(f"{args.requirements}: could not be installed ({error})", file=sys.stderr)
                return 1
            tell_of_others(folder, args.requirements)
        with replace_when_complete(args.output, "w") as file:
            file.write(f"{python}\n")
    return 0


def make_venv(folder: Path, requirements: Path, lock: int) -> None:
    """A new environment in `folder` with what the file asks for, in place of one that was not finished.

    lock: the descriptor of the lock on `folder`. Raises NotInstalled.
    """
    venv.create(folder, clear=True, with_pip=True)
    python = folder / "bin" / "python"
    run("pip", [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-r", str(requirements)], lock)
    recipe = requirements.with_suffix(".sh")
    if recipe.is_file():
        search = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)])
        run(recipe.name, ["bash", str(recipe)], lock, PATH=search)
    (folder / FINISHED).touch()


def tell_of_others(folder: Path, requirements: Path) -> None:
    """Environments are large, and those of an earlier state of the files are nobody's but the user's to delete."""
    others = sorted(str(path) for path in folder.parent.iterdir() if path.is_dir() and path != folder)
    if others:
        print(
            f"{requirements}: of an earlier state of this file, to be deleted once no job runs in them: "
            f"{', '.join(others)}",
            file=sys.stderr,
        )


def run(name: str, command: list[str], lock: int, **variables: str) -> None:
    """Run a step that dies with this process; raises NotInstalled where it fails.

    What the step starts outlives it when it is killed, and may still write into the folder. It inherits the lock, so
    that a successor waits for it.
    """
    parent = os.getpid()
    done = subprocess.run(
        command,
        stdout=sys.stderr,  # where progress belongs: Snakemake shows it and the rule keeps it
        env=os.environ | variables,
        pass_fds=(lock,),
        preexec_fn=lambda: die_with_parent(parent),
    )
    if done.returncode:
        raise NotInstalled(f"{name} ended with {done.returncode}")


if __name__ == "__main__":
    sys.exit(main())
