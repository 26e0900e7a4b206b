"""Draft config/systems/cluster.yaml from what Slurm says: partition, GPUs, cores, memory, limits, accounts, MPI.

Each value has a comment that says where it is from; what only you can know is marked. Nothing that is there is
replaced.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import whole_bytecode  # noqa: F401  (first of the project's modules, for what its import does)
from contracts.errors import ConfigError
from contracts.project_files import project_folder
from describing.draft_file import write_draft
from planning.studies import CLUSTER


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partition", help="where to measure (default: the partition with most GPUs)")
    parser.add_argument("--system", default=CLUSTER, help=f"name of the file in config/systems/ (default: {CLUSTER})")
    parser.add_argument("--answers", type=Path, help="folder with Slurm's answers as texts, in place of asking it")
    args = parser.parse_args()
    try:
        print(write_draft(args.system, args.partition, args.answers, project_folder()))
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
