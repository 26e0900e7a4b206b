"""GPT-2 style decoders: shape, parameters, FLOPs, weights' names and shapes, and how one may be cut.

Learned positions, pre-norm LayerNorm, a feed-forward of 4 x `hidden_size`, biases, a head of its own unless the model
ties it to the token embedding. FLOPs are those of the AxoNN paper (arXiv:2110.13005, its evaluation metrics), for b
sequences of s tokens a step: b is the global batch, s `seq_length`, l `num_layers`, h `hidden_size`, V `vocab_size`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contracts.cell import Layout


@dataclass(frozen=True)
class Gpt:
    """A shape (see `contracts.model.Model`)."""

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    seq_length: int
    vocab_size: int
    tie_embeddings: bool = False
    architecture: str = "gpt"
    source: str = ""
    shown_as: str = ""

    @property
    def num_parameters(self) -> int:
        """The exact count: token and position embeddings, layers with biases, last LayerNorm, head without bias."""
        h = self.hidden_size
        per_layer = 12 * h * h + 13 * h
        head = 0 if self.tie_embeddings else self.vocab_size * h
        return self.vocab_size * h + self.seq_length * h + self.num_layers * per_layer + 2 * h + head

    @property
    def layers_size(self) -> int:
        return self.num_layers * self.hidden_size**2

    def besides_layers(self) -> dict[str, Any]:
        names = ("seq_length", "vocab_size", "tie_embeddings", "architecture")
        return {name: getattr(self, name) for name in names}

    @property
    def tokens_per_sample(self) -> int:
        return self.seq_length

    def shape(self) -> dict[str, Any]:
        return {
            "architecture": self.architecture,
            "num_layers": self.num_layers,
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
            "seq_length": self.seq_length,
            "vocab_size": self.vocab_size,
            "tie_embeddings": self.tie_embeddings,
        }

    def model_flops_per_step(self, global_batch_size: int) -> float:
        """Return 72 b s l h^2 (1 + s/(6h) + V/(12 l h)).

        The head is in the last term; it is never recomputed, hence 12 here against 16 in the paper's formula.
        """
        s, layers, h, vocab = self.seq_length, self.num_layers, self.hidden_size, self.vocab_size
        return 72.0 * global_batch_size * s * layers * h * h * (1 + s / (6 * h) + vocab / (12 * layers * h))

    def recomputing_flops_per_step(self, global_batch_size: int) -> float:
        """Return 96 b s l h^2 (1 + s/(6h) + V/(16 l h)), the paper's count with a recomputed forward pass of layers."""
        s, layers, h, vocab = self.seq_length, self.num_layers, self.hidden_size, self.vocab_size
        return 96.0 * global_batch_size * s * layers * h * h * (1 + s / (6 * h) + vocab / (16 * layers * h))

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return every parameter's name and shape in the order of the forward pass.

        Names are those of `frameworks.torch.decoder`; a projection's weight is [outputs, inputs].
        """
        h = self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "token_embedding.weight": (self.vocab_size, h),
            "position_embedding.weight": (self.seq_length, h),
        }
        for index in range(self.num_layers):
            shapes |= {f"blocks.{index}.{name}": shape for name, shape in _block_shapes(h).items()}
        shapes |= {"final_norm.weight": (h,), "final_norm.bias": (h,)}
        if not self.tie_embeddings:
            shapes["head.weight"] = (self.vocab_size, h)
        return shapes

    def mistake(self) -> str:
        if self.hidden_size % self.num_heads:
            return f"hidden_size {self.hidden_size} is not divisible by num_heads {self.num_heads}"
        return ""

    def cut_mistake(self, layout: Layout) -> str:
        """Stages take whole layers, and tensor ranks whole heads."""
        stages, tensor = layout.pipeline_parallel, layout.tensor_parallel
        if layout.stage_layers:
            named = ", ".join(map(str, layout.stage_layers))
            if len(layout.stage_layers) != stages:
                return f"stage_layers ({named}) has {len(layout.stage_layers)} entries for {stages} pipeline stages"
            if min(layout.stage_layers) < 1:
                return f"stage_layers ({named}) leaves a stage of {self.name} without a layer"
            if sum(layout.stage_layers) != self.num_layers:
                return (
                    f"stage_layers ({named}) are {sum(layout.stage_layers)} layers, and {self.name} has "
                    f"{self.num_layers}"
                )
        elif self.num_layers % stages:
            return (
                f"{self.num_layers} layers of {self.name} are not divisible by {stages} pipeline stages; say in "
                f"stage_layers how many each takes"
            )
        if self.num_heads % tensor:
            return f"{self.num_heads} heads of {self.name} are not divisible by tensor_parallel {tensor}"
        return ""


# What config/models.yaml's entries with `architecture: gpt` are made of.
SHAPE = Gpt


def layers_of_stages(model: Gpt, layout: Layout) -> tuple[int, ...]:
    """Return how many layers each pipeline stage holds, the first stage's first."""
    return layout.stage_layers or (model.num_layers // layout.pipeline_parallel,) * layout.pipeline_parallel


def stage_blocks(model: Gpt, layout: Layout, index: int) -> range:
    """Return the indices of the layers that pipeline stage `index` holds."""
    counts = layers_of_stages(model, layout)
    first = sum(counts[:index])
    return range(first, first + counts[index])


def _block_shapes(h: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"attention_norm.weight": (h,), "attention_norm.bias": (h,)}
    for projection in ("query", "key", "value", "output"):
        shapes[f"attention.{projection}.weight"] = (h, h)
        shapes[f"attention.{projection}.bias"] = (h,)
    return shapes | {
        "feed_forward_norm.weight": (h,),
        "feed_forward_norm.bias": (h,),
        "feed_forward.up.weight": (4 * h, h),
        "feed_forward.up.bias": (4 * h,),
        "feed_forward.down.weight": (h, 4 * h),
        "feed_forward.down.bias": (h,),
    }
