"""What each framework ran with: one row for every cell of a study, whatever became of it."""

from __future__ import annotations

from typing import Any

import pandas as pd

from contracts.devices import Device
from reporting.absent_results import REASON_CHARACTERS, status_text
from reporting.rendering import DISPLAYS, EMPTY, Display
from reporting.results import counted_repeats, is_true
from reporting.study_data import StudyData

COLUMNS = [
    "framework", "model", "num_gpus", "layout", "best_layout", "status", "repeats", "repeats_planned",
    "data_parallel", "tensor_parallel", "pipeline_parallel", "layout_options", "global_batch_size",
    "micro_batch_size", "num_micro_batches", "seq_length", "num_layers", "hidden_size", "num_heads", "vocab_size",
    "num_parameters", "precision", "activation_checkpointing", "learning_rate", "adam_epsilon", "seed",
    "initial_weights", "device_name", "threads_per_process", "versions", "git_commit", "cell_id",
]  # fmt: skip


def hyperparameters(data: StudyData) -> pd.DataFrame:
    """One row per cell (repeats and comparisons together), sorted by model, GPUs, framework and layout."""
    rows = data.measurements.sort_values(
        ["num_parameters", "model", "num_gpus", "framework", "layout", "cell_id", "repeat", "comparison"], kind="stable"
    )
    best = rows.groupby("cell_id")["best_layout"].agg(lambda values: any(map(is_true, values)))
    # Of several repeats the one that was measured says most about what the cell ran with.
    measured_first = rows.assign(order=rows["status"].ne("ok")).sort_values("order", kind="stable")
    one = measured_first.drop_duplicates("cell_id").set_index("cell_id", drop=False).loc[rows["cell_id"].unique()]
    runs = rows.drop_duplicates(["cell_id", "repeat"]).groupby("cell_id")["status"]
    one = one.assign(
        best_layout=best.loc[one.index].astype("boolean"),
        repeats=runs.agg(lambda statuses: int((statuses == "ok").sum())).loc[one.index],
        repeats_planned=runs.size().loc[one.index],
    )
    frame = one[COLUMNS].reset_index(drop=True)
    frame.attrs[DISPLAYS] = (_display(data, one),)
    return frame


def _display(data: StudyData, rows: pd.DataFrame) -> Display:
    devices = set(rows["device"])
    kinds = [Device(device).units for device in devices]
    units = kinds[0][0].upper() + kinds[0][1:] if len(kinds) == 1 else "GPUs or processes"
    headings = (
        "Model", units, "Framework", "Layout", "Best", "Global batch", "Micro-batches", "Precision",
        "Checkpointing", "Learning rate", "Seed", "Weights", "Status",
    )  # fmt: skip
    cells = tuple(
        (
            _model(r), str(r["num_gpus"]), r["framework_shown_as"] or r["framework"], r["layout"],
            "yes" if is_true(r["best_layout"]) else "",
            str(r["global_batch_size"]), str(r["num_micro_batches"]), r["precision"], r["activation_checkpointing"],
            f"{r['learning_rate']:g}", str(r["seed"]), r["initial_weights"] or EMPTY,
            _status(r),
        )
        for r in rows.to_dict("records")
    )  # fmt: skip
    models = rows.drop_duplicates("model").to_dict("records")
    shapes = tuple(
        f"{_key(r)}: {r['num_layers']} layers, hidden size {r['hidden_size']}, {r['num_heads']} heads, sequence "
        f"length {r['seq_length']}, vocabulary {r['vocab_size']}, {_count(r['num_parameters'])} parameters"
        for r in models
    )
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in sorted(set(rows["adam_epsilon"])))
    caption = f"{data.title}: what each framework ran with"
    details = (
        f"Optimizer AdamW (0.9, 0.95, eps {epsilons}) without weight decay; Best marks the layout that the "
        "other tables show."
    )
    return Display(
        caption, headings, cells, shapes, wide=(3, 12), group=2, details=details, fold=(5, *range(7, 12))
    )  # fmt: skip


def _model(row: dict[str, Any]) -> str:
    return row["model_shown_as"] or row["model"]


def _key(row: dict[str, Any]) -> str:
    """The model's name for readers and, where that is another, its entry in config/models.yaml."""
    shown, key = _model(row), row["model"]
    return key if shown == key else f"{shown} ({key})"


def _status(row: dict[str, Any]) -> str:
    """`ok`, with the number of repeats that are where some are not, or how the cell ended."""
    if row["status"] != "ok":
        return status_text(row, REASON_CHARACTERS)
    repeats, planned = row["repeats"], row["repeats_planned"]
    return "ok" if repeats == planned else f"ok ({counted_repeats(repeats, planned)} repeats)"


def _count(value: object) -> str:
    return "an unknown number of" if pd.isna(value) else f"{value:,}"
