"""What stands against a cell under every torch adaptor. Needs no torch."""

from __future__ import annotations

from workloads.training.training_cell import TrainingCell

PRECISIONS = ("fp32", "bf16", "fp16")
CHECKPOINTING = ("none", "full", "selective")


def torch_reason(cell: TrainingCell) -> str | None:
    """What no torch adaptor can do; None when nothing stands against the cell."""
    if cell.precision not in PRECISIONS:
        return f"precision {cell.precision} is none of {', '.join(PRECISIONS)}"
    if cell.activation_checkpointing not in CHECKPOINTING:
        return f"activation checkpointing {cell.activation_checkpointing} is none of {', '.join(CHECKPOINTING)}"
    if cell.precision == "fp16" and not cell.device.is_accelerator:
        return "fp16 needs a GPU: on a CPU torch trains in fp32 or bf16"
    return None
