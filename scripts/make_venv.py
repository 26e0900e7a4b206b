"""Make a virtual environment from a requirements file and note its interpreter; pip's progress goes to the terminal."""

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requirements", type=Path, required=True, help="envs/<name>.txt")
    parser.add_argument("--folder", type=Path, required=True, help="where to make it; what lies there is replaced")
    parser.add_argument("--output", type=Path, required=True, help="file for the interpreter's path")
    args = parser.parse_args()
    # One that outlived its Snakemake would write into the folder of its successor.
    die_with_parent(os.getppid())
    args.folder.parent.mkdir(parents=True, exist_ok=True)
    with args.folder.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        args.output.unlink(missing_ok=True)
        try:
            python = make_venv(args.folder.resolve(), args.requirements)
        except subprocess.CalledProcessError as error:
            print(f"{args.requirements}: could not be installed (pip ended with {error.returncode})", file=sys.stderr)
            return 1
        with replace_when_complete(args.output, "w") as file:
            file.write(f"{python}\n")
    return 0


def make_venv(folder: Path, requirements: Path) -> Path:
    """A new environment in `folder` with what the file asks for; returns its interpreter."""
    venv.create(folder, clear=True, with_pip=True)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-r", str(requirements)]
    parent = os.getpid()
    # On stderr, where progress belongs: Snakemake shows it and the rule keeps it.
    subprocess.run(command, check=True, stdout=sys.stderr, preexec_fn=lambda: die_with_parent(parent))
    return python


if __name__ == "__main__":
    sys.exit(main())
