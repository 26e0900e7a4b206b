"""The engine's step through a `torch.distributed.pipelining` schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage

from frameworks.torch.torch_engine import Loss, mean_token_loss
from frameworks.torch.torch_model import LOSS_SCALE
from frameworks.torch.torch_setup import half_type
from workloads.training.training_cell import TrainingCell


@dataclass(frozen=True)
class PipelineBatches:
    """Accumulates a share's gradients through a schedule whose loss is `scaled_loss(cell)`.

    The schedule must be made with `scale_grads=False`: that loss holds each micro-batch's part already.
    """

    schedule: Any
    cell: TrainingCell
    is_first: bool
    is_last: bool

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor | None:
        """int64 [sequences, seq_length] each; the share's mean loss on the last stage, None on the others."""
        arguments = (inputs,) if self.is_first else ()
        losses: list[Tensor] = []
        ends = {"target": targets, "losses": losses} if self.is_last else {}
        self.schedule.step(*arguments, **ends, return_outputs=False)
        return torch.stack(losses).sum().detach() / LOSS_SCALE[self.cell.precision] if self.is_last else None


def scaled_loss(cell: TrainingCell) -> Loss:
    """A micro-batch's part of the share's mean loss, times the loss scale: the parts' gradients just add up."""
    scale = LOSS_SCALE[cell.precision] / cell.num_micro_batches
    return lambda logits, targets: mean_token_loss(logits, targets) * scale


def pipeline_stage(
    model: nn.Module, cell: TrainingCell, index: int, device: torch.device, group: ProcessGroup
) -> PipelineStage:
    """Stage `index`, told beforehand what goes in and out of it.

    Left to find out, torch runs the first micro-batch an extra time. Under DDP (seen with torch 2.13) that run leaves
    the reducer expecting gradients, so the first micro-batch is all-reduced on its own and GPipe stops with an
    internal assertion.
    """
    stages = cell.layout.pipeline_parallel
    shape = (cell.layout.micro_batch_size, cell.model.seq_length)
    tokens = torch.empty(shape, dtype=torch.int64, device="meta")
    # float32 in half precision too: under autocast the residual stream stays in the embedding's type.
    activations = torch.empty(*shape, cell.model.hidden_size, device="meta", requires_grad=True)
    logits_type = half_type(cell.precision) or torch.float32
    logits = torch.empty(*shape, cell.model.vocab_size, dtype=logits_type, device="meta", requires_grad=True)
    return PipelineStage(
        model,
        index,
        stages,
        device,
        input_args=tokens if index == 0 else activations,
        output_args=logits if index == stages - 1 else activations,
        group=group,
    )
