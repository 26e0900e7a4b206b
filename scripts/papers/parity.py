"""Do all frameworks compute the same model? Losses against one process of plain torch (DESIGN.md, study parity)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from contracts.cell import Cell
from metrics.losses import losses_from_text, max_relative_difference
from reporting.absent_results import REASON_CHARACTERS, shortened, status_text
from reporting.rendering import DISPLAYS, EMPTY, Display
from reporting.results import is_true
from reporting.study_data import StudyData

REFERENCE_FRAMEWORK = "torch_plain"
TOLERANCE = 1e-4
# What has to be equal for losses to be equal: model, data and optimizer, all but how the work is spread.
_SAME = (
    "model", "num_layers", "hidden_size", "num_heads", "seq_length", "vocab_size", "global_batch_size", "precision",
    "seed", "learning_rate", "adam_epsilon",
)  # fmt: skip

_SHOWN = (
    "framework", "layout", "num_gpus", "status", "kind", "reason", "losses", "notes", "initial_weights", "final_loss",
    "activation_checkpointing", "code_changed", "repeat", "cell_id",
)  # fmt: skip


def parity(data: StudyData) -> pd.DataFrame:
    """One row per cell and repeat: the largest relative difference of its losses from the reference's over all batches.

    `within_tolerance` is empty where nothing could be compared (the cell did not run, no reference), `reason` says why.
    """
    rows = data.measurements.drop_duplicates(["cell_id", "repeat"])[[*_SAME, *_SHOWN]].to_dict("records")
    rows.sort(key=lambda r: (r["model"], r["framework"], r["num_gpus"], r["layout"], r["cell_id"], r["repeat"]))
    references: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if row["framework"] == REFERENCE_FRAMEWORK and row["num_gpus"] == 1 and row["status"] == "ok" and row["losses"]:
            references.setdefault(_setting(row), row)
    frame = pd.DataFrame([_compared(row, references.get(_setting(row))) for row in rows])
    frame["within_tolerance"] = frame["within_tolerance"].astype("boolean")
    frame.attrs[DISPLAYS] = (_display(data, frame),)
    return frame


def check_cells(cells: Sequence[Cell]) -> None:
    """Raise ValueError where a cell has no reference, one process of plain torch that trains the same."""
    held = {
        (c.model.name, c.global_batch_size) for c in cells if c.framework == REFERENCE_FRAMEWORK and c.num_gpus == 1
    }
    lacking = next((c for c in cells if (c.model.name, c.global_batch_size) not in held), None)
    if lacking is None:
        return
    what = f"the table parity compares losses with those of {REFERENCE_FRAMEWORK} on 1 GPU"
    if not any(cell.framework == REFERENCE_FRAMEWORK for cell in cells):
        raise ValueError(f"frameworks: {what}, which is not among them; add {REFERENCE_FRAMEWORK}")
    raise ValueError(
        f"comparisons: {what}, and there is no such cell of {lacking.model.name} with a global batch of "
        f"{lacking.global_batch_size}, as {lacking.framework} on {lacking.num_gpus} has it; add it, or take that out"
    )


def _setting(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _SAME)


def _compared(row: dict[str, Any], reference: dict[str, Any] | None) -> dict[str, Any]:
    difference, within, reason = math.nan, None, ""
    if row["status"] == "nan":
        within, reason = False, "a loss is not finite"
    elif row["status"] != "ok":
        reason = status_text(row)
    elif not row["losses"]:
        within, reason = False, next((n for n in row["notes"].split("; ") if n.startswith("losses")), "no losses")
    elif reference is None:
        reason = f"no result of {REFERENCE_FRAMEWORK} on 1 GPU with this model, batch, precision and seed"
    else:
        difference = max_relative_difference(losses_from_text(row["losses"]), losses_from_text(reference["losses"]))
        within = difference <= TOLERANCE
        if math.isinf(difference):
            difference, reason = math.nan, "a loss of the reference is 0, and this one is not"
        elif row["initial_weights"] != "shared" and not within:
            reason = "it drew its own initial weights"
        elif is_true(row["code_changed"]) or is_true(reference["code_changed"]):
            reason = "code changed since it was measured"
    return {
        "framework": row["framework"],
        "layout": row["layout"],
        "num_gpus": row["num_gpus"],
        "status": row["status"],
        "max_relative_difference": difference,
        "within_tolerance": within,
        "tolerance": TOLERANCE,
        "reason": reason,
        "model": row["model"],
        "global_batch_size": row["global_batch_size"],
        "precision": row["precision"],
        "activation_checkpointing": row["activation_checkpointing"],
        "seed": row["seed"],
        "repeat": row["repeat"],
        "final_loss": row["final_loss"],
        "code_changed": row["code_changed"],
        "reference_cell_id": reference["cell_id"] if reference else "",
        "cell_id": row["cell_id"],
    }


def _display(data: StudyData, frame: pd.DataFrame) -> Display:
    verdict = {True: "yes", False: "NO"}
    rows = tuple(
        (
            r["framework"], str(r["num_gpus"]), r["layout"], r["model"], r["precision"], r["status"],
            EMPTY if math.isnan(r["max_relative_difference"]) else f"{r['max_relative_difference']:.1e}",
            EMPTY if pd.isna(r["within_tolerance"]) else verdict[bool(r["within_tolerance"])],
            shortened(r["reason"], REASON_CHARACTERS + 30) or EMPTY,
        )
        for r in frame.to_dict("records")
    )  # fmt: skip
    caption = f"{data.title}: losses of all batches against one process of {REFERENCE_FRAMEWORK}"
    details = f"Same means a relative difference of at most {TOLERANCE:g} in every batch."
    headings = (
        "Framework",
        "GPUs or processes",
        "Layout",
        "Model",
        "Precision",
        "Status",
        "Largest relative difference",
        "Same?",
        "Reason",
    )
    return Display(caption, headings, rows, wide=(2, 8), details=details, fold=(3, 4))


TABLES = {"parity": parity}
FIGURES: dict[str, Any] = {}
