"""measurements.csv: one row for every (comparison, cell, repeat) of a study, whatever became of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from contracts.cell import Cell
from contracts.outcomes import EndKind, Outcome
from contracts.shown_as import ShownAs
from metrics import flops
from metrics.circumstances import Row, circumstance_columns
from metrics.columns import COLUMNS, INTEGER, NUMBER, measurements_frame
from metrics.comparing import Compared, add_comparison
from metrics.losses import global_losses, losses_to_text
from metrics.peaks import MEASURED, machine_peaks, measured_peak, peak_of_record
from metrics.timing import timing_of_ranks
from planning.plan import PlannedCell, Study, record_path

BYTES_PER_GIB = 2**30
# What a record can break that its schema does not see. The rows of the others are written all the same.
_UNMEASURABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
_NUMBERS = tuple(column.name for column in COLUMNS if column.type == NUMBER)
_INTEGERS = frozenset(column.name for column in COLUMNS if column.type == INTEGER)


def measurement_rows(
    study: Study, outcomes: Mapping[tuple[str, int], Outcome], hardware: Mapping[str, Any]
) -> pd.DataFrame:
    """Return one row per (comparison, cell, repeat) of the study with the columns of metrics.columns, in its order.

    `outcomes` is keyed by (cell_id, repeat); a cell without one is missing (never_ran). `hardware` is the content of
    config/hardware.yaml. Nothing about a single record raises: one that cannot be measured becomes a missing row with
    the reason.
    """
    once = {planned.key: planned for planned in study.planned}
    facts = {key: _row(study, planned, outcomes.get(key), hardware) for key, planned in once.items()}
    _add_shares_of_peak([(facts[key], planned.cell) for key, planned in once.items()])
    rows: list[Row] = []
    for comparison in study.comparisons:
        compared = [
            Compared(
                row={**facts[p.key], "comparison": comparison.name, "notes": list(facts[p.key]["notes"])},
                cell=p.cell,
                record=(outcomes[p.key].record or {}) if facts[p.key]["status"] == "ok" else {},
            )
            for p in comparison.cells
        ]
        add_comparison(compared, comparison, is_local=study.system.slurm is None)
        rows.extend(one.row for one in compared)
    for row in rows:
        row["notes"] = "; ".join(dict.fromkeys(row["notes"]))
    return measurements_frame(rows)


def _row(study: Study, planned: PlannedCell, outcome: Outcome | None, hardware: Mapping[str, Any]) -> Row:
    outcome = _effective_outcome(planned, outcome)
    row = {"system": study.system.name, "study": study.name, "study_title": study.title}
    row |= {"repeat": planned.repeat, "cell_id": planned.cell.cell_id}
    row |= _planned_columns(planned.cell)
    shown = study.shown_as.get(planned.cell.framework, ShownAs())
    row |= {"framework_shown_as": shown.name, "framework_style": shown.style}
    row |= {"status": outcome.status, "reason": outcome.reason, "kind": outcome.kind, "notes": []}
    if outcome.record is None:
        return row
    try:
        return _checked(_recorded_columns(study, planned, outcome, outcome.record, hardware, row))
    except _UNMEASURABLE as error:
        return row | _unmeasurable(error)


def _unmeasurable(error: Exception) -> Row:
    """Return what a row says whose record cannot be measured: it is no result, shown and never counted."""
    return {"status": "missing", "kind": EndKind.CORRUPT_RECORD, "reason": f"the record cannot be measured: {error}"}


def _checked(row: Row) -> Row:
    """Return the row; raise ValueError for a number that no measurement can give, or that no table can hold."""
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} would be {value}")
        # JSON's 1e308 is a whole number as well.
        if name in _INTEGERS and value is not None and not -(2**63) <= value < 2**63:
            raise ValueError(f"{name} would be {value}")
    return row


def _recorded_columns(
    study: Study,
    planned: PlannedCell,
    outcome: Outcome,
    record: Mapping[str, Any],
    hardware: Mapping[str, Any],
    row: Row,
) -> Row:
    columns = {**row, **circumstance_columns(record, planned.cell)}
    columns["code_changed"] = outcome.code_changed
    columns["record_path"] = record_path(Path("results"), study.system.name, planned).as_posix()
    columns |= _loss_columns(record, columns)
    if outcome.status == "ok":
        columns |= _metric_columns(record, planned.cell, hardware, columns)
    return columns


def _effective_outcome(planned: PlannedCell, outcome: Outcome | None) -> Outcome:
    obstacle = planned.obstacle
    if obstacle is not None and (obstacle.status == "unsupported" or outcome is None or outcome.record is None):
        kind = EndKind.TOO_LARGE if obstacle.status == "missing" else ""
        return Outcome(status=obstacle.status, reason=obstacle.reason, kind=kind)
    if outcome is None:
        return Outcome(status="missing", reason="has not run yet", kind=EndKind.NEVER_RAN)
    return outcome


def _planned_columns(cell: Cell) -> Row:
    model, layout, shape = cell.model, cell.layout, cell.model.shape()
    return {
        "framework": cell.framework,
        "model": model.name,
        "model_shown_as": model.shown_as,
        "num_parameters": model.num_parameters,
        "num_gpus": cell.num_gpus,
        "num_nodes": cell.num_nodes,
        "precision": cell.precision,
        "activation_checkpointing": cell.activation_checkpointing,
        "global_batch_size": cell.global_batch_size,
        "micro_batch_size": layout.micro_batch_size,
        "num_micro_batches": cell.num_micro_batches,
        "seq_length": model.seq_length,
        **{name: shape.get(name) for name in ("num_layers", "hidden_size", "num_heads")},
        "vocab_size": model.vocab_size,
        "data_parallel": layout.data_parallel,
        "tensor_parallel": layout.tensor_parallel,
        "pipeline_parallel": layout.pipeline_parallel,
        "layout": layout.label(),
        "layout_options": ";".join(f"{name}={value}" for name, value in sorted(layout.options.items())),
        "corpus": " ".join(str(cell.corpus[key]) for key in ("source", "revision") if key in cell.corpus),
        "seed": cell.seed,
        "learning_rate": cell.learning_rate,
        "adam_epsilon": cell.adam_epsilon,
        "device": cell.device,
        "threads_per_process": cell.threads_per_process,
    }


def _loss_columns(record: Mapping[str, Any], row: Row) -> Row:
    try:
        losses = global_losses(record["ranks"])
    except ValueError as error:
        # Cells that did not end ok need not hold losses at all.
        return {"notes": [*row["notes"], str(error)]} if record["status"] == "ok" else {}
    if not losses:
        return {}
    return {"losses": losses_to_text(losses), "final_loss": losses[-1] if math.isfinite(losses[-1]) else None}


def _metric_columns(record: Mapping[str, Any], cell: Cell, hardware: Mapping[str, Any], row: Row) -> Row:
    ranks = record["ranks"]
    if len(ranks) != cell.num_gpus:
        raise ValueError(
            f"the record holds {len(ranks)} ranks, the cell has {cell.num_gpus}: forget it and run it again"
        )
    timing = timing_of_ranks(ranks)
    peak = peak_of_record(hardware, cell.device, ranks)
    t, b, n, model = timing.batch_time_s, cell.global_batch_size, cell.num_gpus, cell.model
    work = model.model_flops_per_step(b)
    return {
        "batch_time_s": t,
        "batch_time_std_s": timing.batch_time_std_s,
        "batch_time_median_s": timing.batch_time_median_s,
        "first_half_batch_time_s": timing.first_half_batch_time_s,
        "second_half_batch_time_s": timing.second_half_batch_time_s,
        "input_time_s": timing.input_time_s,
        "warmup_batch_time_s": timing.warmup_batch_time_s,
        "window_batch_time_s": timing.window_batch_time_s,
        "timing_check": timing.timing_check,
        "expected_training_time_s": flops.expected_training_time_s(t, b, model.tokens_per_sample),
        "percentage_comparable_to_paper": flops.percentage_comparable_to_paper(
            model, cell.activation_checkpointing, cell.precision
        ),
        "model_flops_per_step": work,
        "model_flops_per_s_per_gpu": None if work is None else work / t / n,
        "tokens_per_s": b * model.tokens_per_sample / t,
        "samples_per_s": b / t,
        **_reported_columns(record, b / t, None if work is None else work / t / n),
        "peak_flops_per_gpu": peak.flops_per_s,
        "own_peak_flops_per_gpu": measured_peak(ranks) if cell.device.peak_is_measured else None,
        "peak_source": peak.source,
        "peak_memory_gib": _peak_memory_gib(ranks),
        "notes": [*row["notes"], *timing.notes, *([peak.note] if peak.note else [])],
    }


def _add_shares_of_peak(rows: Sequence[tuple[Row, Cell]]) -> None:
    """Fill in, in place, the machine's peak where it was measured, and what share of its peak every row reached."""
    measured = [(row, cell) for row, cell in rows if row["status"] == "ok"]
    for index, peak in machine_peaks([row for row, _ in measured]).items():
        row = measured[index][0]
        row |= {"peak_flops_per_gpu": peak.flops_per_s, "peak_num_cells": peak.num_cells, "peak_source": MEASURED}
        row["notes"] += [peak.note] if peak.note else []
    for row, cell in measured:
        try:
            row |= _checked(_shares_of_peak(row, cell))
        except _UNMEASURABLE as error:
            row |= dict.fromkeys(_NUMBERS) | _planned_columns(cell) | _unmeasurable(error)


def _shares_of_peak(row: Row, cell: Cell) -> Row:
    arguments = (cell.model, cell.global_batch_size, row["batch_time_s"], row["peak_flops_per_gpu"], cell.num_gpus)
    percentage = flops.percentage_of_peak_throughput(*arguments)
    utilization = flops.model_flops_utilization_percent(*arguments)
    hardware_utilization = flops.hardware_flops_utilization_percent(*arguments, cell.activation_checkpointing)
    notes = list(row["notes"])
    if not flops.is_above_peak(utilization, hardware_utilization) and (percentage or 0) > 100:
        notes.append(
            "percentage_of_peak_throughput is above 100 only because the paper's formula counts a whole recomputed "
            "pass, which this cell did not do"
        )
    return {
        "percentage_of_peak_throughput": percentage,
        "model_flops_utilization_percent": utilization,
        "hardware_flops_utilization_percent": hardware_utilization,
        "notes": notes,
    }


def _reported_columns(record: Mapping[str, Any], samples_per_s: float, flops_per_s_per_gpu: float | None) -> Row:
    """Return what the framework says of its own speed; its window and its count of FLOPs are its own."""
    # What a framework reports may be nonsense (a time of zero, say), which is no speed.
    reported = {name: speed for name, speed in record.get("reported_by_framework", {}).items() if speed > 0}
    samples, tflops = reported.get("samples_per_s"), reported.get("tflops_per_gpu")
    disagreement = None
    if samples is not None:
        disagreement = 100 * (samples / samples_per_s - 1)
    elif tflops is not None and flops_per_s_per_gpu:
        disagreement = 100 * (1e12 * tflops / flops_per_s_per_gpu - 1)
    return {
        "reported_samples_per_s": samples,
        "reported_tflops_per_gpu": tflops,
        "reported_disagreement_percent": disagreement,
    }


def _peak_memory_gib(ranks: Sequence[Mapping[str, Any]]) -> float | None:
    held = [rank["peak_memory_bytes"] for rank in ranks]
    # The largest of some ranks may not be the largest of all.
    return None if None in held else max(held) / BYTES_PER_GIB
