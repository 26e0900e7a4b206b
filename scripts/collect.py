"""Collect a study's records into measurements.csv: one row per comparison, cell and repeat, every metric with its unit.

A damaged record is set aside, so that the next call measures its cell again; one that cannot be read is left where it
is. The measurements of all others are written either way, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from contracts.errors import ConfigError
from contracts.project_files import project_folder
from reporting.collecting import collect


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True, help="name of the file in config/studies/")
    parser.add_argument("--system", required=True, help="name of the file in config/systems/")
    parser.add_argument("--output", type=Path, required=True, help="the CSV to write")
    parser.add_argument("--made-from", type=Path, help="file for the digests of what went into it")
    args = parser.parse_args()
    try:
        wrong = collect(args.study, args.system, args.output, args.made_from, project_folder())
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
