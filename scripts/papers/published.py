"""Published numbers beside the measured ones: which one applies, the ratio, and why they cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from metrics.flops import HALF_PRECISIONS
from papers.results import Result

RELATIVE_METRICS = frozenset({"days_saved", "percent_saved"})


@dataclass(frozen=True)
class Published:
    """One published value or range for one metric, set against a measured value (NaN where there is none).

    `ratio_to_min` and `ratio_to_max` are measured / published; `differences` say why the ratio means little.
    """

    metric: str
    unit: str
    measured: float
    value_min: float
    value_max: float
    differences: tuple[str, ...]
    where: str
    note: str

    @property
    def ratio_to_min(self) -> float:
        return self.measured / self.value_min

    @property
    def ratio_to_max(self) -> float:
        return self.measured / self.value_max


def published_beside(result: Result, measured: Mapping[str, float], reference: pd.DataFrame | None) -> list[Published]:
    """For every metric that `reference` has, the published value nearest to this result, in the file's order.

    `measured` maps a metric's name to the measured value. The nearest is the same framework's, then the same model's,
    then one for this number of GPUs; what still differs is listed.
    """
    if reference is None:
        return []
    nearest: dict[str, tuple[tuple[bool, bool, bool], dict[str, Any]]] = {}
    for row in reference.to_dict("records"):
        # What a framework saves against others is its own: only a rate says something beside another framework's.
        if row["metric"] in RELATIVE_METRICS and row["framework"] != result.framework:
            continue
        score = (row["framework"] == result.framework, _has_model(row, result), _has_gpus(row, result))
        if row["metric"] in measured and (row["metric"] not in nearest or score > nearest[row["metric"]][0]):
            nearest[row["metric"]] = (score, row)
    return [
        Published(
            metric=metric,
            unit=row["unit"],
            measured=measured[metric],
            value_min=row["value_min"],
            value_max=row["value_max"],
            differences=tuple(_differences(row, result)),
            where=f"{row['paper']}, {row['source']}, {row['where']}",
            note=row["note"],
        )
        for metric, (_, row) in nearest.items()
    ]


def _differences(row: Mapping[str, Any], result: Result) -> list[str]:
    differences = []
    if row["framework"] != result.framework:
        differences.append(f"framework {result.framework}, not {row['framework']}")
    if not _has_model(row, result):
        differences.append(f"model {result.model}, not {row['models'].replace(';', ', ')}")
    unit = ("CPU process" if result.device == "cpu" else "GPU") + (
        "" if result.num_gpus == 1 else "s" if result.device != "cpu" else "es"
    )
    if not _has_gpus(row, result) or result.device == "cpu":
        low, high = int(row["num_gpus_min"]), int(row["num_gpus_max"])
        differences.append(f"{result.num_gpus} {unit}, not {low if low == high else f'{low} to {high}'} GPUs")
    if not result.is_measured:
        return differences
    if row["device"] and row["device"] not in (result.device_key, result.device_name):
        differences.append(f"device {result.device_key or result.device_name}, not {row['device']}")
    same_precision = (
        result.precision in HALF_PRECISIONS if row["precision"] == "half" else result.precision == row["precision"]
    )
    if row["precision"] and not same_precision:
        differences.append(f"precision {result.precision}, not {row['precision']}")
    if row["activation_checkpointing"] not in ("", result.activation_checkpointing):
        differences.append(
            f"activation checkpointing {result.activation_checkpointing}, not {row['activation_checkpointing']}"
        )
    batch = row["global_batch_size"]
    if not math.isnan(batch) and batch != result.global_batch_size:
        differences.append(f"global batch {result.global_batch_size}, not {batch:g}")
    return differences


def _has_model(row: Mapping[str, Any], result: Result) -> bool:
    return result.model in row["models"].split(";")


def _has_gpus(row: Mapping[str, Any], result: Result) -> bool:
    return row["num_gpus_min"] <= result.num_gpus <= row["num_gpus_max"]
