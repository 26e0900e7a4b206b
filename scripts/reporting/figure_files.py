"""Write a figure in every form, for a page and for a column, from measurements.csv and published numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from reporting.figure_forms import FORMS
from reporting.figures import save_figure
from reporting.study_data import load_study_data

DrawFigure = Callable[..., Any]


def write_figure(
    measurements: Path, draw: DrawFigure, name: str, reference: Path | None, output_dir: Path, title: str = ""
) -> list[Path]:
    """Write <name>.svg, .pdf and .png and <name>_column.pdf, each complete or not at all; return their paths.

    `draw` is the paper's function for this figure. Raises ValueError for files that are no measurements.
    """
    data = load_study_data(measurements, reference, title)
    return [path for form in FORMS for path in save_figure(draw(data, form), output_dir, name, form)]
