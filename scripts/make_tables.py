"""Write one table of a paper as CSV, Markdown and LaTeX, from measurements.csv and published numbers alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from atomic import replace_when_complete
from made_from import drawn_digests, note_made_from
from papers.latex_tables import to_latex
from papers.loading import find_table
from papers.rendering import to_markdown
from papers.study_data import load_study_data
from papers.table_columns import table_csv


def write_table(
    measurements: Path, paper: str, table: str, reference: Path | None, output_dir: Path, title: str = ""
) -> list[Path]:
    """Write <table>.csv, .md and .tex into `output_dir`, each complete or not at all; returns their paths.

    Raises ValueError for a wrong paper or table (with the right names), and for files that are no measurements.
    """
    make = find_table(paper, table)
    data = load_study_data(measurements, reference, title)
    return write_frame(make(data), output_dir, table, f"{data.study}-{table}")


def write_frame(frame: pd.DataFrame, output_dir: Path, name: str, label: str) -> list[Path]:
    """Write a table's <name>.csv, .md and .tex, each complete or not at all; returns their paths. label: LaTeX's."""
    contents = {
        "csv": table_csv(frame),
        "md": to_markdown(frame),
        "tex": to_latex(frame, label),
    }
    paths = []
    for suffix, text in contents.items():
        path = output_dir / f"{name}.{suffix}"
        with replace_when_complete(path, "w") as file:
            file.write(text)
        paths.append(path)
    return paths


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=Path, required=True, help="measurements.csv of a study")
    parser.add_argument("--paper", required=True, help="a module of scripts/papers/")
    parser.add_argument("--table", required=True, help="one of the paper's tables")
    parser.add_argument("--reference", type=Path, help="published numbers, a CSV of reference/")
    parser.add_argument("--output-dir", type=Path, required=True, help="where the files go")
    parser.add_argument("--title", default="", help="in place of the study's title")
    parser.add_argument("--made-from", type=Path, help="file for the digests of what went into it")
    args = parser.parse_args()
    try:
        measurements, reference = args.measurements, args.reference
        digests = drawn_digests("table", args.paper, measurements, reference, args.title) if args.made_from else {}
        write_table(measurements, args.paper, args.table, reference, args.output_dir, args.title)
        if args.made_from:
            note_made_from(args.made_from, digests)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
