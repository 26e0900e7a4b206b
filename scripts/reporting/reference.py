"""Read a file of published numbers (reference/README.md) strictly: a mistake in it is told before anything trains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from contracts.errors import nearest, shown_value
from planning.adaptors import adaptor_names

REFERENCE_TEXT = (
    "paper", "framework", "models", "metric", "unit", "device", "precision", "activation_checkpointing",
    "compared_with", "where", "source", "note",
)  # fmt: skip
REFERENCE_NUMBERS = ("num_gpus_min", "num_gpus_max", "value_min", "value_max", "global_batch_size")
# Metrics that set a framework against others: a row says against which, or it cannot be set beside anything.
SAVINGS = frozenset({"days_saved", "percent_saved"})
METRICS = ("percentage_of_peak_throughput", "training_days", "batch_time_s", *sorted(SAVINGS))
# What is set beside a cell's own words.
_WORDS = {
    "precision": ("", "half", "fp32", "bf16", "fp16"),
    "activation_checkpointing": ("", "none", "selective", "full"),
}
_NEEDED = ("framework", "models", "metric")


def read_reference(path: Path) -> pd.DataFrame:
    """Return a file of reference/: text columns with "" for empty, numbers with NaN.

    Raises ValueError, with file and line, where it has not the columns, numbers and names that a table needs.
    """
    try:
        raw = pd.read_csv(path, dtype=str, keep_default_na=False, skip_blank_lines=False)
    except (OSError, ValueError) as error:  # of pandas' own words: no columns, more fields than columns, no UTF-8
        raise ValueError(f"{path}: cannot be read: {str(error).strip()}") from None
    absent = [name for name in (*REFERENCE_TEXT, *REFERENCE_NUMBERS) if name not in raw]
    if absent:
        raise ValueError(f"{path}: no column {', '.join(absent)}; reference/README.md lists what a file needs")
    known = adaptor_names()
    numbers = []
    for line, row in enumerate(raw.fillna("").to_dict("records"), start=2):
        try:
            numbers.append(_numbers(row))
            _check_words(row, known)
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from None
    return raw.assign(**{name: [row[name] for row in numbers] for name in REFERENCE_NUMBERS})


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    numbers = {name: _number(name, row[name]) for name in REFERENCE_NUMBERS}
    for low, high in (("num_gpus_min", "num_gpus_max"), ("value_min", "value_max")):
        if numbers[low] > numbers[high]:
            raise ValueError(f"{low} {row[low]} is above {high} {row[high]}; exchange them")
    return numbers


def _number(name: str, text: str) -> float:
    if text == "" and name == "global_batch_size":
        return math.nan
    try:
        number = float(text)
    except ValueError:
        remedy = "; a range has its ends in value_min and value_max" if name.startswith("value") else ""
        raise ValueError(f"{name}: {shown_value(text)} is no number{remedy}") from None
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name}: {shown_value(text)} is not above zero and finite")
    if not name.startswith("value") and not number.is_integer():
        raise ValueError(f"{name}: {shown_value(text)} is no whole number")
    return number


def _check_words(row: Mapping[str, Any], known_frameworks: Sequence[str]) -> None:
    for name in _NEEDED:
        if not row[name].strip():
            raise ValueError(f"{name} is empty; reference/README.md says what stands there")
    allowed = {"framework": known_frameworks, "metric": METRICS, **_WORDS}
    for name, words in allowed.items():
        if row[name] not in words:
            raise ValueError(f"{name}: {shown_value(row[name])} is not known{nearest(row[name], filter(None, words))}")
    compared = compared_frameworks(row)
    for framework in compared:
        if framework not in known_frameworks:
            raise ValueError(
                f"compared_with: {shown_value(framework)} is not known{nearest(framework, known_frameworks)}"
            )
    if row["metric"] in SAVINGS and not compared:
        raise ValueError(
            f"compared_with is empty; {row['metric']} needs the frameworks that the source compared, joined by ;"
        )


def compared_frameworks(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the frameworks that the source of a published value compared its own with."""
    return tuple(name.strip() for name in row["compared_with"].split(";") if name.strip())
