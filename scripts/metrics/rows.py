"""measurements.csv: one row for every (comparison, cell, repeat) of a study, whatever became of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from matrix.cells import Cell
from matrix.outcomes import Outcome
from matrix.plan import Comparison, PlannedCell, Study, record_path
from metrics import flops
from metrics.columns import measurements_frame
from metrics.losses import global_losses, losses_to_text
from metrics.peaks import odd_peak_notes, peak_of_record
from metrics.scaling import Point, scale_points
from metrics.timing import timing_of_ranks

BYTES_PER_GIB = 2**30
# A desktop's own processes stay below; another job does not.
BUSY_HOST_PERCENT = 10.0
STAND_IN_NOTE = "a package that only knows CUDA ran on a CPU: for correctness, its times say nothing of its speed"
Row = dict[str, Any]


def measurement_rows(
    study: Study, outcomes: Mapping[tuple[str, int], Outcome], hardware: Mapping[str, Any]
) -> pd.DataFrame:
    """One row per (comparison, cell, repeat) of the study, with the columns of metrics.columns, in the study's order.

    `outcomes` is keyed by (cell_id, repeat); a cell without one is missing (never_ran). `hardware` is the content of
    config/hardware.yaml. Nothing about a single record raises: one that cannot be measured becomes a missing row with
    the reason.
    """
    once = {planned.key: planned for planned in study.planned}
    facts = {key: _row(study, planned, key[0], outcomes.get(key), hardware) for key, planned in once.items()}
    cells = list(facts.values())
    for index, note in odd_peak_notes(cells).items():
        cells[index]["notes"].append(note)
    rows: list[Row] = []
    for comparison in study.comparisons:
        of_comparison = []
        for planned in comparison.cells:
            shared = facts[planned.key]
            of_comparison.append({**shared, "comparison": comparison.name, "notes": list(shared["notes"])})
        _add_scaling(of_comparison, comparison)
        rows.extend(of_comparison)
    for row in rows:
        row["notes"] = "; ".join(dict.fromkeys(row["notes"]))
    return measurements_frame(rows)


def _row(study: Study, planned: PlannedCell, cell_id: str, outcome: Outcome | None, hardware: Mapping[str, Any]) -> Row:
    outcome = _effective_outcome(planned, outcome)
    row = {"system": study.system.name, "study": study.name, "study_title": study.title}
    row |= {"repeat": planned.repeat, "cell_id": cell_id}
    row |= _planned_columns(planned.cell)
    row |= {"status": outcome.status, "reason": outcome.reason, "kind": outcome.kind, "notes": []}
    record = outcome.record
    if record is None:
        return row
    # A record that cannot be measured is no result: shown, never counted. Its schema was checked when it was read, but
    # values that no run leaves (a stamp of 1e308) still break arithmetic, and must not take the other rows with them.
    try:
        row |= _finite(_recorded_columns(study, planned, outcome, record, hardware, row))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        row |= {"status": "missing", "kind": "corrupt_record", "reason": f"the record cannot be measured: {error}"}
    return row


def _finite(columns: Row) -> Row:
    """Return the columns; raise ValueError for a number that no measurement can give."""
    for name, value in columns.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} would be {value}")
    return columns


def _recorded_columns(
    study: Study,
    planned: PlannedCell,
    outcome: Outcome,
    record: Mapping[str, Any],
    hardware: Mapping[str, Any],
    row: Row,
) -> Row:
    columns = {**row, **_circumstances(record, planned.cell)}
    columns["code_changed"] = outcome.code_changed
    columns["record_path"] = record_path(Path("results"), study.system.name, planned).as_posix()
    columns |= _loss_columns(record, columns)
    if outcome.status == "ok":
        columns |= _metric_columns(record, planned.cell, hardware, columns)
    return columns


def _effective_outcome(planned: PlannedCell, outcome: Outcome | None) -> Outcome:
    obstacle = planned.obstacle
    if obstacle is not None and (obstacle.status == "unsupported" or outcome is None or outcome.record is None):
        kind = "too_large" if obstacle.status == "missing" else ""
        return Outcome(status=obstacle.status, reason=obstacle.reason, kind=kind)
    if outcome is None:
        return Outcome(status="missing", reason="has not run yet", kind="never_ran")
    return outcome


def _planned_columns(cell: Cell) -> Row:
    model, layout = cell.model, cell.layout
    return {
        "framework": cell.framework,
        "model": model.name,
        "num_parameters": model.num_parameters if flops.has_known_flops(model) else None,
        "num_gpus": cell.num_gpus,
        "num_nodes": cell.num_nodes,
        "precision": cell.precision,
        "activation_checkpointing": cell.activation_checkpointing,
        "global_batch_size": cell.global_batch_size,
        "micro_batch_size": layout.micro_batch_size,
        "num_micro_batches": cell.num_micro_batches,
        "seq_length": model.seq_length,
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "num_heads": model.num_heads,
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
    }


def _circumstances(record: Mapping[str, Any], cell: Cell) -> Row:
    launch, ranks = record["launch"], record["ranks"]
    commit = record["git_commit"]
    row: Row = {
        "num_nodes": launch["num_nodes"],
        "hosts": ";".join(launch["hosts"]),
        "device_name": " + ".join(sorted({rank["device_name"] for rank in ranks})),
        "threads_per_process": launch["threads_per_process"],
        "cpu_cores": launch["cpu_cores"],
        "initial_weights": record["settings"]["initial_weights"],
        "started_at": record["started_at"],
        "git_commit": f"{commit}-dirty" if commit and record["git_dirty"] else commit,
        "versions": ";".join(f"{name} {version}" for name, version in sorted(record["versions"].items()) if version),
        "notes": ["the nodes were shared with other jobs"] if launch["node_shared"] else [],
    }
    row["cuda_stand_in"] = bool(record["settings"].get("cuda_stand_in"))
    if row["cuda_stand_in"]:
        row["notes"].append(STAND_IN_NOTE)
    others = others_cpu_percent(launch)
    row["others_cpu_percent"] = others
    if others is not None and others > BUSY_HOST_PERCENT:
        row["notes"].append(f"the host was busy: others used {others:.0f} % of its cores, so times may be too long")
    if cell.device == "cpu":
        processes = max(Counter(rank["host"] for rank in ranks).values(), default=cell.num_gpus // launch["num_nodes"])
        row["oversubscribed"] = processes * launch["threads_per_process"] > launch["cpu_cores"]
        if row["oversubscribed"]:
            row["notes"].append(
                f"oversubscribed: more threads ({processes} x {launch['threads_per_process']}) than cores "
                f"({launch['cpu_cores']})"
            )
    return row


def others_cpu_percent(launch: Mapping[str, Any]) -> float | None:
    """Share of the launcher's node's cores that others used while the cell ran; None where the host did not tell."""
    if launch["others_cpu_s"] is None or launch["wall_s"] <= 0:
        return None
    return 100 * launch["others_cpu_s"] / (launch["wall_s"] * launch["cpu_cores"])


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
    work = flops.model_flops_per_step(model, b)
    percentage = flops.percentage_of_peak_throughput(model, b, t, peak.flops_per_s, n)
    utilization = flops.model_flops_utilization_percent(model, b, t, peak.flops_per_s, n)
    hardware_utilization = flops.hardware_flops_utilization_percent(
        model, b, t, peak.flops_per_s, n, cell.activation_checkpointing
    )
    notes = [*row["notes"], *timing.notes, *([peak.note] if peak.note else [])]
    if (utilization or 0) > 100 or (hardware_utilization or 0) > 100:
        notes.append("above the peak: the peak or the times are wrong")
    return {
        "batch_time_s": t,
        "batch_time_std_s": timing.batch_time_std_s,
        "input_time_s": timing.input_time_s,
        "warmup_batch_time_s": timing.warmup_batch_time_s,
        "window_batch_time_s": timing.window_batch_time_s,
        "timing_check": timing.timing_check,
        "expected_training_time_s": flops.expected_training_time_s(t, b, model.seq_length),
        "percentage_of_peak_throughput": percentage,
        "percentage_comparable_to_paper": flops.percentage_comparable_to_paper(
            model, cell.activation_checkpointing, cell.precision
        ),
        "model_flops_utilization_percent": utilization,
        "hardware_flops_utilization_percent": hardware_utilization,
        "model_flops_per_step": work,
        "model_flops_per_s_per_gpu": None if work is None else work / t / n,
        "tokens_per_s": b * model.seq_length / t,
        "samples_per_s": b / t,
        **_reported_columns(record, b / t, None if work is None else work / t / n),
        "peak_flops_per_gpu": peak.flops_per_s,
        "peak_source": peak.source,
        "peak_memory_gib": _peak_memory_gib(ranks),
        "notes": notes,
    }


def _reported_columns(record: Mapping[str, Any], samples_per_s: float, flops_per_s_per_gpu: float | None) -> Row:
    """What the framework says of its own speed, beside ours; its window and its count of FLOPs are its own."""
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


def _add_scaling(rows: Sequence[Row], comparison: Comparison) -> None:
    """Fill in, in place, what comparing the rows of one comparison says about each."""
    measured = [row for row in rows if row["status"] == "ok"]
    points = [
        Point(
            framework=row["framework"],
            model=row["model"],
            num_gpus=row["num_gpus"],
            cell_id=row["cell_id"],
            layout=row["layout"],
            global_batch_size=row["global_batch_size"],
            precision=row["precision"],
            activation_checkpointing=row["activation_checkpointing"],
            device_name=row["device_name"],
            batch_time_s=row["batch_time_s"],
            tokens_per_batch=row["global_batch_size"] * row["seq_length"],
            model_flops_per_step=row["model_flops_per_step"],
        )
        for row in measured
    ]
    for row in rows:
        row |= {"scaling": comparison.scaling, "baseline_policy": comparison.baseline, "best_layout": False}
    for row, scaled in zip(measured, scale_points(points, comparison.scaling, comparison.baseline), strict=True):
        row |= {
            "best_layout": scaled.best_layout,
            # Times of a CPU in CUDA's place say nothing beside others'.
            "comparable": scaled.comparable and not row["cuda_stand_in"],
            "speedup": scaled.speedup,
            "parallel_efficiency": scaled.parallel_efficiency,
            "baseline": scaled.baseline,
            "baseline_num_gpus": scaled.baseline_num_gpus,
        }
        row["notes"].extend(scaled.notes)
