"""What several adaptors share of a layout: why a cell cannot run, which layers a stage holds. Needs no framework."""

from __future__ import annotations

from contracts.cell import Cell

PRECISIONS = ("fp32", "bf16", "fp16")
CHECKPOINTING = ("none", "full", "selective")


def torch_reason(cell: Cell) -> str | None:
    """What no torch adaptor can do; None when nothing stands against the cell."""
    if cell.model.architecture != "gpt":
        return f"the torch adaptors train GPT models, not {cell.model.architecture}"
    if cell.precision not in PRECISIONS:
        return f"precision {cell.precision} is none of {', '.join(PRECISIONS)}"
    if cell.activation_checkpointing not in CHECKPOINTING:
        return f"activation checkpointing {cell.activation_checkpointing} is none of {', '.join(CHECKPOINTING)}"
    if cell.precision == "fp16" and cell.device == "cpu":
        return "fp16 needs a GPU: on a CPU torch trains in fp32 or bf16"
    return None


def stage_blocks(num_layers: int, stages: int, index: int) -> range:
    """The layers of stage `index` of `stages` equal ones."""
    per_stage = num_layers // stages
    return range(index * per_stage, (index + 1) * per_stage)
