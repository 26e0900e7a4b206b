"""Published numbers beside the measured ones: which one applies, the ratio, and why they cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from contracts.devices import Device
from metrics.flops import HALF_PRECISIONS
from reporting.leads import lead_over_best_other
from reporting.reference import SAVINGS, compared_frameworks
from reporting.results import Result
from reporting.spreads import Spread

# What is measured of one framework by itself.
_OWN: Mapping[str, Callable[[Result], Spread]] = {
    "percentage_of_peak_throughput": lambda result: result.percentage_of_peak,
    "training_days": lambda result: result.training_days,
    "batch_time_s": lambda result: result.batch_time_s,
}


@dataclass(frozen=True)
class Published:
    """One published value or range for one metric, set against a measured value (empty where there is none).

    `ratio_min` and `ratio_max`, the smaller and the larger, are measured / published, over both ends of a range;
    `differences` say why they mean little.
    `compared_with` is the framework that a saving is measured against, and `verdict` says whether it is more than its
    spread (reporting/leads.py); both are empty for other metrics.
    """

    metric: str
    unit: str
    measured: Spread
    value_min: float
    value_max: float
    differences: tuple[str, ...]
    where: str
    note: str
    compared_with: str = ""
    verdict: str = ""

    @property
    def ratio_min(self) -> float:
        return min(self._ratios)

    @property
    def ratio_max(self) -> float:
        return max(self._ratios)

    @property
    def _ratios(self) -> tuple[float, float]:
        return self.measured.mean / self.value_max, self.measured.mean / self.value_min


@dataclass(frozen=True)
class Band:
    """The range that is published for one framework with one model on one number of GPUs."""

    model: str
    num_gpus: int
    value_min: float
    value_max: float
    framework: str
    where: str


def published_beside(result: Result, point: Sequence[Result], reference: pd.DataFrame | None) -> list[Published]:
    """Return for every metric that `reference` has the published value nearest to this result, in the file's order.

    `point` are the results of all frameworks at the same point. There is nothing for CPU processes, and for a model
    that the source does not have. Of the rest, the nearest is the same framework's, then one for this number of GPUs;
    what still differs is listed. What a framework saves is only its own, and over those that the source compared.
    """
    if reference is None or not Device(result.device).is_accelerator:
        return []
    nearest: dict[str, tuple[tuple[bool, bool], dict[str, Any]]] = {}
    for row in reference.to_dict("records"):
        metric = row["metric"]
        if not _has_model(row, result) or (metric in SAVINGS and row["framework"] != result.framework):
            continue
        score = (row["framework"] == result.framework, _has_gpus(row, result))
        if metric not in nearest or score > nearest[metric][0]:
            nearest[metric] = (score, row)
    found = (_published(row, result, point) for _, row in nearest.values())
    return [one for one in found if one is not None]


def published_bands(metric: str, results: Sequence[Result], reference: pd.DataFrame | None) -> list[Band]:
    """Return what is published of this metric for the models and numbers of GPUs of these results, none for a CPU."""
    if reference is None:
        return []
    on_gpus = [result for result in results if Device(result.device).is_accelerator]
    bands = [
        Band(r.model, r.num_gpus, row["value_min"], row["value_max"], row["framework"], _where(row))
        for row in reference.to_dict("records")
        for r in on_gpus
        if row["metric"] == metric and _has_model(row, r) and _has_gpus(row, r)
    ]
    return list(dict.fromkeys(bands))


def _published(row: Mapping[str, Any], result: Result, point: Sequence[Result]) -> Published | None:
    """Return None where there is nothing to set this value beside: no such metric, none of the source's frameworks."""
    metric, compared_with, verdict = row["metric"], "", ""
    if metric in SAVINGS:
        lead = lead_over_best_other(result, point, among=compared_frameworks(row))
        if lead.other is None:
            return None
        measured, compared_with, verdict = getattr(lead, metric), lead.other.framework, lead.verdict
    elif metric in _OWN:
        measured = _OWN[metric](result)
    else:
        return None
    return Published(
        metric=metric,
        unit=row["unit"],
        measured=measured,
        value_min=row["value_min"],
        value_max=row["value_max"],
        differences=tuple(_differences(row, result)),
        where=_where(row),
        note=row["note"],
        compared_with=compared_with,
        verdict=verdict,
    )


def _where(row: Mapping[str, Any]) -> str:
    return f"{row['paper']}, {row['source']}, {row['where']}"


def _differences(row: Mapping[str, Any], result: Result) -> list[str]:
    differences = []
    if row["framework"] != result.framework:
        differences.append(f"framework {result.framework}, not {row['framework']}")
    if not _has_gpus(row, result):
        low, high = int(row["num_gpus_min"]), int(row["num_gpus_max"])
        unit = "GPU" if result.num_gpus == 1 else "GPUs"
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
    if not result.comparable:
        differences.append("not comparable inside its own study (see its notes)")
    return differences


def _has_model(row: Mapping[str, Any], result: Result) -> bool:
    return result.model in row["models"].split(";")


def _has_gpus(row: Mapping[str, Any], result: Result) -> bool:
    return row["num_gpus_min"] <= result.num_gpus <= row["num_gpus_max"]
