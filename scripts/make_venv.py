"""Make a virtual environment from a requirements file and note its interpreter; all progress goes to the terminal.

Where `envs/<name>.sh` lies beside `envs/<name>.txt` it is run afterwards, with the environment's `bin` first on PATH: a
recipe for what pip cannot install as it was released.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from contracts.project_files import project_folder
from installation.framework_venv import provide_venv
from installation.installer import NotInstalled
from workloads.child import die_with_parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requirements", type=Path, required=True, help="envs/<name>.txt")
    parser.add_argument("--folder", type=Path, required=True, help="where it is, or will be made")
    parser.add_argument("--output", type=Path, required=True, help="file for the interpreter's path")
    args = parser.parse_args()
    # One that outlived its Snakemake would write into the folder of its successor.
    die_with_parent(os.getppid())
    try:
        provide_venv(args.requirements, args.folder, args.output, project_folder())
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{args.requirements}: could not be installed ({error.strerror}: {error.filename})", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
