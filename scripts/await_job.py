"""Wait for the Slurm job of an earlier call that measures a cell; succeed when its record is there.

A login shell that is killed leaves its jobs running. The next call must not start a second copy of such a cell.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from launching.results import read_failure
from scheduling.queue import find_job


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job-id", required=True, help="the job in the queue")
    parser.add_argument("--record", type=Path, required=True, help="the record it will write")
    parser.add_argument("--interval-s", type=float, default=10.0, help="how often to ask")
    args = parser.parse_args()
    while (job := find_job(args.job_id)) is not None and job.is_in_queue:
        time.sleep(args.interval_s)
    if args.record.is_file():
        return 0
    failure = read_failure(args.record.parent)
    said = f"{failure.kind}: {failure.full_reason}" if failure else "it ended without a record"
    print(f"{args.record.parent}: job {args.job_id}: {said}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
