"""One part of a cell: a node's ranks in a Slurm job, or one rank under MPI; launch.py has srun or mpiexec start it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from launcher.own_part import run_own_part


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--exchange", type=Path, required=True, help="folder shared with the launcher; holds launch-plan.json"
    )
    parser.add_argument("--part-from", required=True, help="variables of which one says which part this is, by commas")
    args = parser.parse_args()
    return run_own_part(args.exchange, args.part_from.split(","))


if __name__ == "__main__":
    sys.exit(main())
