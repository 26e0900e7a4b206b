"""Note the path of the Python this runs under, which must be a conda environment's (snakemake --sdm conda)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from contracts.errors import ConfigError
from installation.conda_python import note_interpreter


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="file for the interpreter's path")
    args = parser.parse_args()
    try:
        note_interpreter(args.output)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
