"""Exit with 0 when Snakemake's lock on this folder was left by a process that is gone, with 1 otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

from launcher.run_lock import is_left_behind

if __name__ == "__main__":
    sys.exit(0 if is_left_behind(Path.cwd()) else 1)
