"""Write a table as CSV, Markdown and LaTeX, from measurements.csv and published numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from contracts.atomic import replace_when_complete
from reporting.latex_tables import to_latex
from reporting.rendering import to_markdown
from reporting.study_data import StudyData, load_study_data
from reporting.table_columns import table_csv

MakeTable = Callable[[StudyData], pd.DataFrame]


def write_table(
    measurements: Path, make: MakeTable, name: str, reference: Path | None, output_dir: Path, title: str = ""
) -> list[Path]:
    """Write <name>.csv, .md and .tex into `output_dir`, each complete or not at all; return their paths.

    `make` is the paper's function for this table. Raises ValueError for files that are no measurements.
    """
    data = load_study_data(measurements, reference, title)
    return write_frame(make(data), output_dir, name, f"{data.study}-{name}")


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
