"""Exit with 0 when Snakemake's lock in this folder was left by a process that is gone, with 1 otherwise.

./run keeps a lock of its own (on an open file descriptor, so the kernel frees it with the process); a plain
`snakemake` does not, so the processes of this host that work in this folder are looked at too.
"""

from __future__ import annotations

import argparse
import fcntl
import sys
from pathlib import Path

import psutil

LOCKS = Path(".snakemake") / "locks"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--descriptor", type=int, required=True, help="open file descriptor that ./run keeps locked")
    args = parser.parse_args()
    try:
        fcntl.flock(args.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 1
    if not LOCKS.is_dir() or not any(LOCKS.iterdir()):
        return 1
    return 1 if snakemake_at_work(Path.cwd()) else 0


def snakemake_at_work(folder: Path) -> bool:
    """Whether a process of this host runs Snakemake in `folder`; one that may not be looked at counts as another's."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if any(Path(word).name == "snakemake" for word in words[:3]) and Path(process.cwd()) == folder:
                return True
        except psutil.Error:
            continue
    return False


if __name__ == "__main__":
    sys.exit(main())
