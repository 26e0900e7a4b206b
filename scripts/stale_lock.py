"""Exit with 0 when Snakemake's lock on this folder was left by a process that is gone, with 1 otherwise."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from launcher.run_lock import is_left_behind


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    return 0 if is_left_behind(Path.cwd()) else 1


if __name__ == "__main__":
    sys.exit(main())
