"""Make a virtual environment from a requirements file and note its interpreter; all progress goes to the terminal.

The interpreter's path is noted relative to the project where it lies in it, so that a moved checkout finds it again.

Where `envs/<name>.sh` lies beside `envs/<name>.txt` it is run after pip, with the environment's `bin` first on PATH: a
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

from atomic import replace_when_complete
from installation.pip_words import failure_words, tells_of_pip
from installation.turns import wait_for_turn
from launching.child import die_with_parent
from whole_bytecode import remove_damaged

ROOT = Path(__file__).resolve().parents[1]
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
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-r", str(requirements)]
    code, output = run(install, lock)
    if code:
        raise NotInstalled(failure_words(output, [str(requirements)]))
    recipe = requirements.with_suffix(".sh")
    if recipe.is_file():
        search = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)])
        code, output = run(["bash", str(recipe)], lock, PATH=search)
        if code and tells_of_pip(output):
            raise NotInstalled(failure_words(output, [str(recipe)]))
        if code:
            raise NotInstalled(f"{requirements}: could not be installed ({recipe.name} ended with {code})")
    remove_damaged([folder])
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


def run(command: list[str], lock: int, **variables: str) -> tuple[int, str]:
    """Run a step that dies with this process, pass on what it prints, and return its exit code and that output.

    What the step starts outlives it when it is killed, and may still write into the folder. It inherits the lock, so
    that a successor waits for it.
    """
    parent = os.getpid()
    printed = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | variables,
        pass_fds=(lock,),
        preexec_fn=lambda: die_with_parent(parent),
    ) as step:
        assert step.stdout, "it is a pipe"
        for line in step.stdout:
            printed.append(line)
            # Where progress belongs: Snakemake shows it and the rule keeps it.
            print(line, end="", file=sys.stderr, flush=True)
    return step.returncode, "".join(printed)


if __name__ == "__main__":
    sys.exit(main())
