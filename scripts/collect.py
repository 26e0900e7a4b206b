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
from metrics.columns import write_measurements
from metrics.rows import measurement_rows
from planning.studies import load_hardware, load_study
from records.setting_aside import records_that_stay, set_aside_damaged
from records.standing import outcomes_now
from reporting.made_from import measurements_digests, note_made_from

ROOT = project_folder()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True, help="name of the file in config/studies/")
    parser.add_argument("--system", required=True, help="name of the file in config/systems/")
    parser.add_argument("--output", type=Path, required=True, help="the CSV to write")
    parser.add_argument("--made-from", type=Path, help="file for the digests of what went into it")
    args = parser.parse_args()
    try:
        study = load_study(args.study, args.system, ROOT)
        # Before anything is read: what changes in the meantime makes the CSV anew at the next call.
        digests = measurements_digests(study, ROOT)
        outcomes = outcomes_now(study, ROOT / "results", ROOT)
        damaged = set_aside_damaged(study, outcomes, ROOT / "results")
        staying = records_that_stay(study, outcomes, ROOT / "results")
        write_measurements(measurement_rows(study, outcomes, load_hardware(ROOT)), args.output)
        for path, reason in staying:
            print(f"{path.relative_to(ROOT)}: {reason}", file=sys.stderr)
        for path, reason in damaged:
            print(
                f"{path.relative_to(ROOT)}: {reason}; set aside, the next call measures the cell again", file=sys.stderr
            )
        if args.made_from and not damaged and not staying:
            note_made_from(args.made_from, digests, args.output)
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if damaged or staying else 0


if __name__ == "__main__":
    sys.exit(main())
