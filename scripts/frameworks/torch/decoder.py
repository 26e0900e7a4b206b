"""The GPT-2 style decoder that every torch framework trains, whole or as one pipeline stage.

Learned positions, pre-norm LayerNorm, GELU (tanh), biases, causal attention through
`scaled_dot_product_attention`, no dropout, an untied head without bias unless the model ties it. Query, key and value
are separate projections, so that tensor parallelism can split each by heads. Parameters keep the same names however
the model is cut: `token_embedding.weight`, `blocks.3.attention.query.weight`, `final_norm.bias`, `head.weight`;
`models.weights.parameter_shapes` lists them all.

Construct it under `torch.device("meta")` to allocate nothing before the parallel wrapper has taken its shard.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from models.gpt import Gpt

NORM_EPSILON = 1e-5
CHECKPOINTING_MODES = ("none", "full", "selective")


class Attention(nn.Module):
    """Causal self-attention. It asks its projections for the heads they hold, which may be a tensor rank's share."""

    def __init__(self, hidden_size: int, num_heads: int) -> None:
        super().__init__()
        self.head_size = hidden_size // num_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, hidden] -> the same shape."""
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two projections, hidden -> 4 hidden -> hidden, with GELU in its tanh form between them."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden_size, 4 * hidden_size)
        self.down = nn.Linear(4 * hidden_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, hidden] -> the same shape."""
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    """One layer, with the activation checkpointing of its own inside.

    The checkpoint sits inside the module and not around it, because FSDP's hooks belong outside: a recomputation in
    the backward pass must not gather or free parameters a second time.
    """

    def __init__(self, hidden_size: int, num_heads: int, checkpointing: str) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden_size, eps=NORM_EPSILON)
        self.attention = Attention(hidden_size, num_heads)
        self.feed_forward_norm = nn.LayerNorm(hidden_size, eps=NORM_EPSILON)
        self.feed_forward = FeedForward(hidden_size)
        self._run = checkpointed(self._layer, checkpointing)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, hidden] -> the same shape."""
        return self._run(x)

    def _layer(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class GPT(nn.Module):
    """The decoder, or the consecutive blocks of one pipeline stage.

    blocks: which layers this module holds; the first stage holds the embeddings too, the last one the final norm and
        the head. All layers when None.
    checkpointing: "none", "full" or "selective" (see `checkpointed`).
    autocast_dtype: the half-precision type in which matrix products run over float32 weights; None leaves the types to
        the weights. It is applied here and not around the training step, so that a pipeline schedule, which runs
        forward and backward passes in one call, keeps its backward passes out of it.

    Raises ValueError for an unknown checkpointing mode, for blocks the model does not have, and for tied embeddings
    cut over stages (the two ends of the model would have to share one parameter).
    """

    def __init__(
        self,
        model: Gpt,
        *,
        blocks: range | None = None,
        checkpointing: str = "none",
        autocast_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        blocks = range(model.num_layers) if blocks is None else blocks
        is_first, is_last = blocks.start == 0, blocks.stop == model.num_layers
        if not 0 <= blocks.start <= blocks.stop <= model.num_layers or blocks.step != 1:
            raise ValueError(f"{blocks} is no stage of a model with {model.num_layers} layers")
        if model.tie_embeddings and not (is_first and is_last):
            raise ValueError("tied embeddings cannot be cut over pipeline stages")
        self.autocast_dtype = autocast_dtype
        self.token_embedding = nn.Embedding(model.vocab_size, model.hidden_size) if is_first else None
        self.position_embedding = nn.Embedding(model.seq_length, model.hidden_size) if is_first else None
        self.blocks = nn.ModuleDict(
            {str(index): Block(model.hidden_size, model.num_heads, checkpointing) for index in blocks}
        )
        self.final_norm = nn.LayerNorm(model.hidden_size, eps=NORM_EPSILON) if is_last else None
        has_own_head = is_last and not model.tie_embeddings
        self.head = nn.Linear(model.hidden_size, model.vocab_size, bias=False) if has_own_head else None

    def forward(self, x: Tensor) -> Tensor:
        """Token ids int64 [batch, sequence], or a previous stage's activations [batch, sequence, hidden].

        Returns logits [batch, sequence, vocabulary] from the last stage, activations from the others.
        """
        with self._autocast(x.device.type):
            if self.token_embedding is not None:
                # Adding the table's rows, and not looking up positions 0, 1, 2, ..., turns the gradient into a plain
                # sum over the batch.
                x = self.token_embedding(x) + self.position_embedding.weight[: x.shape[1]]
            for block in self.blocks.values():
                x = block(x)
            if self.final_norm is None:
                return x
            x = self.final_norm(x)
            return self.head(x) if self.head is not None else F.linear(x, self.token_embedding.weight)

    def _autocast(self, device_type: str) -> AbstractContextManager[Any]:
        if self.autocast_dtype is None:
            return nullcontext()
        return torch.autocast(device_type, self.autocast_dtype)


def checkpointed(layer: Callable[[Tensor], Tensor], mode: str) -> Callable[[Tensor], Tensor]:
    """`layer` under activation checkpointing.

    "full" keeps only the layer's input and runs the layer again in the backward pass. "selective" keeps what is dear
    to compute (the outputs of matrix products and attention, and of the collectives among them) and recomputes the
    rest (norms, GELU, residual sums): the policy that torchtitan and PyTorch's own guide call selective, per operator.

    Raises ValueError for another mode than CHECKPOINTING_MODES.
    """
    if mode not in CHECKPOINTING_MODES:
        raise ValueError(f"activation checkpointing {mode!r} is none of {', '.join(CHECKPOINTING_MODES)}")
    if mode == "none":
        return layer
    # No dropout anywhere, so the random state need not be saved and restored.
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    if mode == "selective":
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _operators_to_save())
    return lambda x: checkpoint(layer, x, **options)


def _operators_to_save() -> list[Any]:
    aten = torch.ops.aten
    return [
        aten.mm.default,
        aten.addmm.default,
        aten.bmm.default,
        aten.linear.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
        torch.ops._c10d_functional.all_reduce.default,
    ]
