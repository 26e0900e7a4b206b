"""Tensor parallelism for the decoder with DTensor, as Megatron-LM splits a transformer (arXiv:1909.08053).

Activations between the parts of a layer are whole on every tensor rank, so norms and residual sums are plain and their
parameters are replicas with equal gradients. Each of a layer's two parts costs one all-reduce forward and one backward.
Embedding, head and loss are split by the vocabulary; the whole logits never exist.
"""

from __future__ import annotations

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)

from frameworks.torch.decoder import GPT
from frameworks.torch.torch_engine import Accumulate, mean_token_loss


def split_over_tensor_ranks(model: GPT, mesh: DeviceMesh) -> None:
    """Make the projections, the embedding and the head of a whole model DTensors over the one-axis `mesh`, in place.

    The number of heads and the vocabulary must be divisible by the mesh's size. Logits come out split by vocabulary.
    """
    whole = Replicate()
    for block in model.blocks.values():
        parallelize_module(
            block,
            mesh,
            {
                # Declared once for the three projections, so that their input gradients are added before the
                # all-reduce: one instead of three.
                "attention": PrepareModuleInput(input_layouts=whole, desired_input_layouts=whole),
                "attention.query": ColwiseParallel(),
                "attention.key": ColwiseParallel(),
                "attention.value": ColwiseParallel(),
                "attention.output": RowwiseParallel(),
                "feed_forward.up": ColwiseParallel(),
                "feed_forward.down": RowwiseParallel(),
            },
        )
    ends = {
        "token_embedding": RowwiseParallel(input_layouts=whole, output_layouts=whole),
        # A DTensor from here on, for the head as for a tied embedding's weight.
        "final_norm": PrepareModuleOutput(output_layouts=whole, desired_output_layouts=whole, use_local_output=False),
    }
    if model.head is not None:
        ends["head"] = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, mesh, ends)


def vocabulary_parallel_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """`mean_token_loss` of logits split by vocabulary, inside `with_parallel_loss`; equal on all tensor ranks."""
    return mean_token_loss(logits, targets).to_local()


def with_parallel_loss(accumulate: Accumulate) -> Accumulate:
    """`accumulate` with the cross-entropy over a split vocabulary; its backward passes need the context too."""

    def run(inputs: Tensor, targets: Tensor) -> Tensor | None:
        with loss_parallel():
            return accumulate(inputs, targets)

    return run
