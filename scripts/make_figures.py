"""Draw one figure of a paper, for a page and for a column, from measurements.csv and published numbers alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from papers import find_figure
from reporting.figure_files import write_figure
from reporting.made_from import drawn_digests, note_made_from


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=Path, required=True, help="measurements.csv of a study")
    parser.add_argument("--paper", required=True, help="a module of scripts/papers/")
    parser.add_argument("--figure", required=True, help="one of the paper's figures")
    parser.add_argument("--reference", type=Path, help="published numbers, a CSV of reference/")
    parser.add_argument("--output-dir", type=Path, required=True, help="where the files go")
    parser.add_argument("--title", default="", help="in place of the study's title")
    parser.add_argument("--made-from", type=Path, help="file for the digests of what went into it")
    args = parser.parse_args()
    try:
        measurements, reference = args.measurements, args.reference
        digests = drawn_digests("figure", args.paper, measurements, reference, args.title) if args.made_from else {}
        draw = find_figure(args.paper, args.figure)
        write_figure(measurements, draw, args.figure, reference, args.output_dir, args.title)
        if args.made_from:
            note_made_from(args.made_from, digests)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
