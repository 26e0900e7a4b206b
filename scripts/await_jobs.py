"""Wait for the Slurm jobs of an earlier call that measure cells; succeed when all their records are there.

A login shell that is killed leaves its jobs running. The next call must not start a second copy of such a cell.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from launcher.slurm.awaiting import await_jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="+", metavar="JOB=RECORD", help="a job in the queue and the record it will write")
    parser.add_argument("--interval-s", type=float, default=10.0, help="how often to ask")
    args = parser.parse_args()
    records = {job: Path(record) for job, _, record in (word.partition("=") for word in args.jobs)}
    return 1 if await_jobs(records, args.interval_s) else 0


if __name__ == "__main__":
    sys.exit(main())
