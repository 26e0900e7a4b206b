"""What tables and figures are made from: measurements.csv and, where there are any, published numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from metrics.columns import read_measurements
from reporting.reference import read_reference


@dataclass(frozen=True)
class StudyData:
    """A study's measurements (metrics.columns) and published numbers (reference/README.md).

    `comparisons` maps a comparison's name to (scaling, baseline policy).
    """

    measurements: pd.DataFrame
    reference: pd.DataFrame | None
    title: str
    study: str
    comparisons: dict[str, tuple[str, str]]


def study_data(measurements: pd.DataFrame, reference: pd.DataFrame | None = None, title: str = "") -> StudyData:
    """Everything from the two tables alone; the title is the measurements' own unless given.

    Raises ValueError where the measurements are empty or of several studies or systems.
    """
    for column in ("study", "system"):
        names = sorted(measurements[column].unique())
        if len(names) != 1:
            raise ValueError(
                f"measurements hold {len(names)} values of {column} ({', '.join(names)}): "
                "tables are made of one study on one system"
            )
    pairs = measurements[["comparison", "scaling", "baseline_policy"]].drop_duplicates()
    comparisons = {
        name: (scaling, policy) for name, scaling, policy in sorted(pairs.itertuples(index=False, name=None))
    }
    study = str(measurements["study"].iloc[0])
    title = title or str(measurements["study_title"].iloc[0]) or study
    return StudyData(measurements, reference, title, study, comparisons)


def load_study_data(measurements: Path, reference: Path | None = None, title: str = "") -> StudyData:
    """`study_data` of two files; ValueError names the file that cannot be used."""
    published = None if reference is None else read_reference(reference)
    try:
        return study_data(read_measurements(measurements), published, title)
    except ValueError as error:
        message = str(error)
        raise ValueError(message if str(measurements) in message else f"{measurements}: {message}") from None
