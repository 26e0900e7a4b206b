"""What tables and figures are made from: measurements.csv and, where there are any, published numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from metrics.columns import read_measurements

REFERENCE_TEXT = (
    "paper", "framework", "models", "metric", "unit", "device", "precision", "activation_checkpointing",
    "compared_with", "where", "source", "note",
)  # fmt: skip
# Metrics that set a framework against others: a row says against which, or it cannot be set beside anything.
SAVINGS = frozenset({"days_saved", "percent_saved"})
REFERENCE_NUMBERS = ("num_gpus_min", "num_gpus_max", "value_min", "value_max", "global_batch_size")


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


def read_reference(path: Path) -> pd.DataFrame:
    """A file of reference/: text columns with "" for empty, numbers with NaN; ValueError where it is none."""
    raw = pd.read_csv(path, dtype=str, keep_default_na=False)
    absent = [name for name in (*REFERENCE_TEXT, *REFERENCE_NUMBERS) if name not in raw]
    if absent:
        raise ValueError(f"{path}: no column {', '.join(absent)}; reference/README.md lists what a file needs")
    try:
        numbers = {name: pd.to_numeric(raw[name].replace("", None)) for name in REFERENCE_NUMBERS}
    except ValueError as error:
        raise ValueError(f"{path}: {error}; a range has its ends in value_min and value_max") from None
    reference = raw.assign(**numbers)
    for line, row in enumerate(reference.to_dict("records"), start=2):
        if row["metric"] in SAVINGS and not compared_frameworks(row):
            raise ValueError(
                f"{path}, line {line}: compared_with is empty; {row['metric']} needs the frameworks that the source "
                "compared, joined by ;"
            )
    return reference


def compared_frameworks(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the frameworks that the source of a published value compared its own with."""
    return tuple(name.strip() for name in row["compared_with"].split(";") if name.strip())
