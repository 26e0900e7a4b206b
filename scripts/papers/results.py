"""What became of each (comparison, model, GPUs, framework): repeats together, the best layout, or why there is none."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from metrics.flops import SECONDS_PER_DAY
from metrics.spread import mean, sample_deviation
from papers.study_data import StudyData

STATUS_TEXT = {
    "oom": "OOM",
    "nan": "NaN loss",
    "not_available": "not available",
    "unsupported": "unsupported",
    "missing": "missing",
}
# Most hopeful first: what one can still do something about.
_STATUS_ORDER = ("missing", "not_available", "nan", "oom", "unsupported")

# What a result is made of; turning all columns into Python objects takes most of the time otherwise.
_COLUMNS = [
    "comparison", "scaling", "baseline_policy", "model", "num_parameters", "num_gpus", "framework", "status", "reason",
    "kind", "layout", "cell_id", "repeat", "best_layout", "batch_time_s", "expected_training_time_s",
    "percentage_of_peak_throughput", "tokens_per_s", "speedup", "parallel_efficiency", "baseline", "baseline_num_gpus",
    "comparable", "device", "device_name", "peak_source", "precision", "activation_checkpointing", "global_batch_size",
    "code_changed", "cuda_stand_in", "notes",
]  # fmt: skip


@dataclass(frozen=True)
class Spread:
    """Mean over `n` repeats and their sample standard deviation (NaN for one); both NaN where nothing was measured."""

    mean: float = math.nan
    deviation: float = math.nan
    n: int = 0


@dataclass(frozen=True)
class Result:
    """One framework at one point of one comparison, with its best layout. Empty numbers are NaN.

    `text` says why there is no result (empty where there is one), `short_text` the same for a figure's slot.
    """

    comparison: str
    scaling: str
    baseline_policy: str
    model: str
    num_parameters: int | None
    num_gpus: int
    framework: str
    status: str
    text: str = ""
    short_text: str = ""
    layout: str = ""
    num_layouts: int = 1
    batch_time_s: Spread = field(default_factory=Spread)
    training_days: Spread = field(default_factory=Spread)
    percentage_of_peak: Spread = field(default_factory=Spread)
    tokens_per_s: Spread = field(default_factory=Spread)
    speedup: Spread = field(default_factory=Spread)
    parallel_efficiency: Spread = field(default_factory=Spread)
    baseline: str = ""
    baseline_num_gpus: int | None = None
    comparable: bool = True
    cuda_stand_in: bool = False
    device: str = ""
    device_name: str = ""
    device_key: str = ""  # its entry in config/hardware.yaml
    peak_source: str = ""
    precision: str = ""
    activation_checkpointing: str = ""
    global_batch_size: int = 0
    notes: tuple[str, ...] = ()

    @property
    def is_measured(self) -> bool:
        return self.status == "ok"


def results_of(data: StudyData, scalings: Collection[str]) -> list[Result]:
    """One `Result` for every framework at every point of the comparisons with these scalings.

    Sorted by comparison, size of the model, GPUs and framework: the order of the measurements decides nothing.
    """
    groups: dict[tuple[str, str, int, str], list[dict[str, Any]]] = defaultdict(list)
    wanted = data.measurements[data.measurements["scaling"].isin(list(scalings))]
    for row in wanted[_COLUMNS].to_dict("records"):
        groups[row["comparison"], row["model"], row["num_gpus"], row["framework"]].append(row)
    results = [_result(rows) for rows in groups.values()]
    return sorted(results, key=lambda r: (r.comparison, r.num_parameters or 0, r.model, r.num_gpus, r.framework))


def grouped(results: Iterable[Result], key: Any) -> dict[Any, list[Result]]:
    """Results by `key(result)`, in the order in which keys first appear."""
    groups: dict[Any, list[Result]] = defaultdict(list)
    for result in results:
        groups[key(result)].append(result)
    return dict(groups)


def status_text(row: Mapping[str, Any]) -> str:
    """Why a row has no result, for a table: `OOM`, `unsupported: ...`, `missing: crash`, `needs 384 GPUs, ...`."""
    status, kind, reason = row["status"], row["kind"], row["reason"]
    if status == "missing":
        return f"missing: {reason}" if kind == "too_large" else f"missing: {kind or reason or 'unknown'}"
    if status in ("unsupported", "not_available") and reason:
        return f"{STATUS_TEXT[status]}: {reason}"
    return STATUS_TEXT[status]


def is_true(value: Any) -> bool:
    """A boolean column's value; empty is false."""
    return not pd.isna(value) and bool(value)


def _result(rows: Sequence[dict[str, Any]]) -> Result:
    # Repeats in order and layouts by name: sums of floats must not depend on the order of the file either.
    rows = sorted(rows, key=lambda row: (row["layout"], row["cell_id"], row["repeat"]))
    best = [row for row in rows if row["status"] == "ok" and is_true(row["best_layout"])]
    one = (best or rows)[0]
    common = {
        "comparison": one["comparison"],
        "scaling": one["scaling"],
        "baseline_policy": one["baseline_policy"],
        "model": one["model"],
        "num_parameters": None if pd.isna(one["num_parameters"]) else int(one["num_parameters"]),
        "num_gpus": int(one["num_gpus"]),
        "framework": one["framework"],
        "num_layouts": len({row["cell_id"] for row in rows}),
        "device": one["device"],
        "device_name": " + ".join(sorted({row["device_name"] for row in best or rows if row["device_name"]})),
        "device_key": _device_key(one["peak_source"]),
        "peak_source": one["peak_source"],
        "precision": one["precision"],
        "activation_checkpointing": one["activation_checkpointing"],
        "global_batch_size": int(one["global_batch_size"]),
    }
    if not best:
        status = min((row["status"] for row in rows), key=_STATUS_ORDER.index)
        texts = list(dict.fromkeys(status_text(row) for row in rows))
        return Result(**common, status=status, text="; ".join(texts), short_text=_short_text(rows, status))
    return Result(
        **common,
        status="ok",
        layout=one["layout"],
        batch_time_s=_spread(best, "batch_time_s"),
        training_days=_spread(best, "expected_training_time_s", 1 / SECONDS_PER_DAY),
        percentage_of_peak=_spread(best, "percentage_of_peak_throughput"),
        tokens_per_s=_spread(best, "tokens_per_s"),
        speedup=_spread(best, "speedup"),
        parallel_efficiency=_spread(best, "parallel_efficiency"),
        baseline=one["baseline"],
        baseline_num_gpus=None if pd.isna(one["baseline_num_gpus"]) else int(one["baseline_num_gpus"]),
        comparable=all(is_true(row["comparable"]) for row in best),
        cuda_stand_in=any(is_true(row["cuda_stand_in"]) for row in best),
        notes=tuple(_notes(rows, best)),
    )


def _device_key(peak_source: str) -> str:
    _, separator, key = peak_source.partition(": ")
    return key if separator else ""


def _short_text(rows: Sequence[Mapping[str, Any]], status: str) -> str:
    if status == "missing" and any(row["kind"] == "too_large" for row in rows):
        return f"needs {rows[0]['num_gpus']} GPUs"
    return STATUS_TEXT[status]


def _notes(rows: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = [note for row in best for note in row["notes"].split("; ") if note]
    if any(is_true(row["code_changed"]) for row in best):
        notes.append("code changed since it was measured")
    layout = best[0]["cell_id"]
    for row in rows:
        if row["status"] != "ok":
            what = f"repeat {row['repeat']}" if row["cell_id"] == layout else f"layout {row['layout']}"
            notes.append(f"{what}: {status_text(row)}")
    return list(dict.fromkeys(notes))


def _spread(rows: Sequence[Mapping[str, Any]], column: str, factor: float = 1.0) -> Spread:
    values = [row[column] * factor for row in rows if not pd.isna(row[column])]
    if not values:
        return Spread()
    return Spread(mean(values), sample_deviation(values), len(values))
