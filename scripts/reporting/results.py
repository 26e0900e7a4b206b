"""What became of each (comparison, model, GPUs, framework): repeats together, the best layout, or why there is none.

The times of a layout's repeats are averaged, and every rate follows from that mean, never from a mean of rates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from contracts.devices import Device
from contracts.outcomes import EndKind
from metrics.flops import SECONDS_PER_DAY
from metrics.spread import mean
from reporting.absent_results import REASON_CHARACTERS, STATUS_TEXT, endings_text, status_text
from reporting.spreads import Spread, difference, following, scaled, spread_of
from reporting.study_data import StudyData

# Most hopeful first: what one can still do something about.
_STATUS_ORDER = ("missing", "not_available", "nan", "oom", "unsupported")

# In a note on a layout that cannot be its framework's best, whatever its time.
LEFT_OUT = "passed over"

# What a result is made of; turning all columns into Python objects takes most of the time otherwise.
_COLUMNS = [
    "comparison", "scaling", "baseline_policy", "model", "num_parameters", "num_gpus", "framework", "status", "reason",
    "framework_shown_as", "framework_style", "model_shown_as",
    "kind", "layout", "cell_id", "repeat", "best_layout", "batch_time_s", "batch_time_std_s", "repeats_measured",
    "layout_batch_time_s", "expected_training_time_s", "percentage_of_peak_throughput",
    "model_flops_utilization_percent", "tokens_per_s", "speedup", "speedup_spread", "parallel_efficiency",
    "parallel_efficiency_spread", "baseline", "baseline_num_gpus", "comparable", "device", "device_name", "peak_source",
    "peak_num_cells", "precision", "activation_checkpointing", "global_batch_size", "code_changed", "cuda_stand_in",
    "notes",
]  # fmt: skip


@dataclass(frozen=True)
class Result:
    """One framework at one point of one comparison, with its best layout. Empty numbers are NaN.

    `framework_name` and `model_name` are for readers; `framework` and `model` are the keys of the study's files.
    `text` says why there is no result (empty where there is one), `shown_text` the same with reasons cut to what a
    table has room for, `short_text` in a word or two for a figure's slot. `batch_time_std_s` is the deviation over the
    ten batches within a run, the root mean square over the repeats.
    """

    comparison: str
    scaling: str
    baseline_policy: str
    model: str
    num_parameters: int | None
    num_gpus: int
    framework: str
    status: str
    framework_name: str = ""
    framework_style: int | None = None  # reporting/figure_styles.py
    model_name: str = ""
    text: str = ""
    shown_text: str = ""
    short_text: str = ""
    layout: str = ""
    cell_id: str = ""  # of the layout shown; where there is none, of every layout, joined by ;
    num_layouts: int = 1
    repeats: int = 0
    repeats_planned: int = 1
    batch_time_s: Spread = field(default_factory=Spread)
    batch_time_std_s: float = math.nan
    training_days: Spread = field(default_factory=Spread)
    percentage_of_peak: Spread = field(default_factory=Spread)
    utilization_percent: Spread = field(default_factory=Spread)
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
    peak_num_cells: int | None = None
    precision: str = ""
    activation_checkpointing: str = ""
    global_batch_size: int = 0
    is_too_large: bool = False  # for this system
    notes: tuple[str, ...] = ()
    shown_notes: tuple[str, ...] = ()  # the same with reasons cut

    @property
    def is_measured(self) -> bool:
        return self.status == "ok" and not self.text

    @property
    def repeats_text(self) -> str:
        """`3`, or `2 of 3` where some of the repeats planned have no result."""
        return counted_repeats(self.repeats, self.repeats_planned)


def results_of(data: StudyData, scalings: Collection[str]) -> list[Result]:
    """One `Result` for every framework at every point of the comparisons with these scalings.

    Sorted by comparison, size of the model, GPUs and framework: the order of the measurements decides nothing.
    """
    groups: dict[tuple[str, str, int, str], list[dict[str, Any]]] = defaultdict(list)
    wanted = data.measurements[data.measurements["scaling"].isin(list(scalings))]
    for row in wanted.reindex(columns=_COLUMNS).to_dict("records"):
        groups[row["comparison"], row["model"], row["num_gpus"], row["framework"]].append(row)
    results = [_result(rows) for rows in groups.values()]
    return sorted(results, key=lambda r: (r.comparison, r.num_parameters or 0, r.model, r.num_gpus, r.framework))


def grouped(results: Iterable[Result], key: Any) -> dict[Any, list[Result]]:
    """Results by `key(result)`, in the order in which keys first appear."""
    groups: dict[Any, list[Result]] = defaultdict(list)
    for result in results:
        groups[key(result)].append(result)
    return dict(groups)


def counted_repeats(repeats: int, planned: int) -> str:
    """Return `3`, or `2 of 3` where some of the repeats planned have no result."""
    return str(repeats) if repeats == planned else f"{repeats} of {planned}"


def is_true(value: Any) -> bool:
    """A boolean column's value; empty is false."""
    return not pd.isna(value) and bool(value)


def _result(rows: Sequence[dict[str, Any]]) -> Result:
    # Repeats in order and layouts by name: sums of floats must not depend on the order of the file either.
    rows = sorted(rows, key=lambda row: (row["layout"], row["cell_id"], row["repeat"]))
    measured = [row for row in rows if row["status"] == "ok"]
    best = [row for row in measured if is_true(row["best_layout"])]
    one = (best or measured or rows)[0]
    repeats_planned = sum(row["cell_id"] == one["cell_id"] for row in rows)
    common = {
        "comparison": one["comparison"],
        "scaling": one["scaling"],
        "baseline_policy": one["baseline_policy"],
        "model": one["model"],
        "num_parameters": _whole(one["num_parameters"]),
        "num_gpus": int(one["num_gpus"]),
        "framework": one["framework"],
        # A file of before has no names for readers.
        "framework_name": _text(one["framework_shown_as"]) or one["framework"],
        "framework_style": _whole(one["framework_style"]),
        "model_name": _text(one["model_shown_as"]) or one["model"],
        "num_layouts": len({row["cell_id"] for row in rows}),
        "repeats_planned": repeats_planned,
        "device": one["device"],
        "device_name": " + ".join(_device_names(best or rows)),
        "device_key": _device_key(one["peak_source"]),
        "peak_source": one["peak_source"],
        "precision": one["precision"],
        "activation_checkpointing": one["activation_checkpointing"],
        "global_batch_size": int(one["global_batch_size"]),
    }
    if not measured:
        status = min((row["status"] for row in rows), key=_STATUS_ORDER.index)
        return Result(
            **common,
            status=status,
            cell_id=";".join(dict.fromkeys(row["cell_id"] for row in rows)),
            text=endings_text(rows),
            shown_text=endings_text(rows, REASON_CHARACTERS),
            short_text=_short_text(rows, status),
            is_too_large=_is_too_large(rows, status),
        )
    shown = best or [row for row in measured if row["cell_id"] == one["cell_id"]]
    noted = {
        "cell_id": one["cell_id"],
        "repeats": len(shown),
        "comparable": all(is_true(row["comparable"]) for row in shown),
        "cuda_stand_in": any(is_true(row["cuda_stand_in"]) for row in shown),
        "notes": tuple(_notes(rows, shown)),
        "shown_notes": tuple(_notes(rows, shown, REASON_CHARACTERS)),
    }
    text = _not_averaged_text(shown)
    if text:
        return Result(**common, **noted, status="ok", text=text, shown_text=text, short_text="not averaged")
    return Result(
        **common,
        **noted,
        status="ok",
        layout=one["layout"],
        **_times_and_rates(shown),
        baseline=one["baseline"],
        baseline_num_gpus=_whole(one["baseline_num_gpus"]),
        peak_num_cells=_whole(one["peak_num_cells"]),
    )


def _times_and_rates(repeats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is measured of one layout: the mean time of its repeats, and what follows from that mean."""
    time = spread_of([row["batch_time_s"] for row in repeats])
    deviations = [row["batch_time_std_s"] for row in repeats]
    one = repeats[0]
    return {
        "batch_time_s": time,
        "batch_time_std_s": math.sqrt(mean([deviation**2 for deviation in deviations])),
        # Days grow with the time, all others fall with it.
        "training_days": scaled(_proportional(repeats, "expected_training_time_s", time), 1 / SECONDS_PER_DAY),
        "percentage_of_peak": _inverse(repeats, "percentage_of_peak_throughput", time),
        "utilization_percent": _inverse(repeats, "model_flops_utilization_percent", time),
        "tokens_per_s": _inverse(repeats, "tokens_per_s", time),
        # These two are of two layouts, and were derived from the mean times of both (metrics/scaling.py).
        "speedup": _derived(one["speedup"], one["speedup_spread"], time.n),
        "parallel_efficiency": _derived(one["parallel_efficiency"], one["parallel_efficiency_spread"], time.n),
    }


def _proportional(repeats: Sequence[Mapping[str, Any]], column: str, time: Spread) -> Spread:
    per_second = [row[column] / row["batch_time_s"] for row in repeats if not pd.isna(row[column])]
    return following(time, mean(per_second) * time.mean if per_second else math.nan)


def _inverse(repeats: Sequence[Mapping[str, Any]], column: str, time: Spread) -> Spread:
    work = [row[column] * row["batch_time_s"] for row in repeats if not pd.isna(row[column])]
    return following(time, mean(work) / time.mean if work else math.nan)


def _derived(value: float, deviation: float, n: int) -> Spread:
    return Spread() if pd.isna(value) else Spread(value, deviation, n)


def _text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)


def _whole(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _device_names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({row["device_name"] for row in rows if row["device_name"]})


def _not_averaged_text(repeats: Sequence[Mapping[str, Any]]) -> str:
    """Return why these repeats have no mean, with their times; empty where they have one.

    The mean over two device kinds would be the time of neither.
    """
    kinds = _device_names(repeats)
    if len(kinds) > 1:
        times = {kind: [row for row in repeats if row["device_name"] == kind] for kind in kinds}
        told = "; ".join(f"{kind}: {_seconds(of_kind)}" for kind, of_kind in times.items())
        return f"not averaged: its repeats ran on {len(kinds)} device kinds ({told})"
    # metrics/repeats.py knows of more that keeps repeats apart; a file of before has neither of these columns.
    one = repeats[0]
    if not pd.isna(one["repeats_measured"]) and pd.isna(one["layout_batch_time_s"]):
        return f"not averaged: its repeats were not measured alike ({_seconds(repeats)})"
    return ""


def _seconds(repeats: Iterable[Mapping[str, Any]]) -> str:
    return f"{', '.join(format(row['batch_time_s'], '.4g') for row in repeats)} s a batch"


def _device_key(peak_source: str) -> str:
    _, separator, key = peak_source.partition(": ")
    return key if separator else ""


def _short_text(rows: Sequence[Mapping[str, Any]], status: str) -> str:
    if _is_too_large(rows, status):
        return f"needs {Device(rows[0]['device']).counted(int(rows[0]['num_gpus']))}"
    return STATUS_TEXT[status]


def _is_too_large(rows: Sequence[Mapping[str, Any]], status: str) -> bool:
    return status == "missing" and any(row["kind"] == EndKind.TOO_LARGE for row in rows)


def _notes(
    rows: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]], reason_characters: int | None = None
) -> list[str]:
    notes = [note for row in best for note in row["notes"].split("; ") if note]
    if any(is_true(row["code_changed"]) for row in best):
        notes.append("code changed since it was measured")
    layout = best[0]["cell_id"]
    used = {row["repeat"] for row in best}
    for row in rows:
        if row["status"] == "ok" and row["cell_id"] == layout and row["repeat"] not in used:
            notes += [f"repeat {row['repeat']}: {note}" for note in row["notes"].split("; ") if note]
        if row["status"] != "ok":
            what = f"repeat {row['repeat']}" if row["cell_id"] == layout else f"layout {row['layout']}"
            notes.append(f"{what}: {status_text(row, reason_characters)}")
    notes += _other_layouts_notes(rows, best)
    return list(dict.fromkeys(notes))


def _other_layouts_notes(rows: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return why measured layouts were passed over, and which other is as fast as the best within the spread."""
    layouts: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["status"] == "ok" and row["cell_id"] != best[0]["cell_id"]:
            layouts[row["cell_id"]].append(row)
    notes = []
    times = []
    for repeats in layouts.values():
        layout = repeats[0]["layout"]
        alike = [row["batch_time_s"] for row in repeats if is_true(row["comparable"])]
        text = _not_averaged_text(repeats)
        if text:
            notes.append(f"layout {layout}: {text}")
        elif alike:
            times.append((spread_of(alike), layout))
        elif all(is_true(row["comparable"]) for row in best):
            notes.append(f"layout {layout}: {LEFT_OUT}, {_why_apart(repeats)}")
    if times:
        time, layout = min(times, key=lambda one: (one[0].mean, one[1]))
        gain = difference(time, spread_of([row["batch_time_s"] for row in best]))
        # With one repeat nothing is known of the spread, which the caption says.
        if abs(gain.mean) <= gain.deviation:
            notes.append(
                f"best layout within the spread: layout {layout} takes {time.mean:.4g} s a batch, "
                f"{gain.mean:.2g} ± {gain.deviation:.2g} s more"
            )
    return notes


def _why_apart(repeats: Sequence[Mapping[str, Any]]) -> str:
    """Return why repeats are not compared with the others, as their own notes say it."""
    reasons = [note for row in repeats for note in row["notes"].split("; ") if note.startswith("not compared")]
    return "; ".join(dict.fromkeys(reasons)) or "not comparable (why is in the notes of measurements.csv)"
