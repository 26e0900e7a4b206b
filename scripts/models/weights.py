"""Initial weights that every framework can load: NumPy arrays, a pure function of the seed and the parameter's name.

Each parameter has a random stream of its own, so that a rank draws exactly the parameters it holds and the layout
changes nothing. Names and shapes are those of `frameworks.torch.decoder`: a projection's weight is [outputs, inputs].
"""

from __future__ import annotations

import hashlib

import numpy as np

from contracts.cell import Model

STANDARD_DEVIATION = 0.02

# Up to this many parameters every framework starts from these weights. Drawing costs each rank about 6 s per 100
# million parameters; above, an engine draws its own shards on the device and says so (`initial_weights = "native"`).
SHARED_WEIGHTS_LIMIT = 200_000_000


def are_shared(model: Model) -> bool:
    """Whether the model is small enough that all frameworks start from the weights drawn here."""
    return model.num_parameters <= SHARED_WEIGHTS_LIMIT


def parameter_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Every parameter's name and shape, in the order of the forward pass; their sizes sum to `num_parameters`."""
    h = model.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "token_embedding.weight": (model.vocab_size, h),
        "position_embedding.weight": (model.seq_length, h),
    }
    for index in range(model.num_layers):
        shapes |= {f"blocks.{index}.{name}": shape for name, shape in _block_shapes(h).items()}
    shapes |= {"final_norm.weight": (h,), "final_norm.bias": (h,)}
    if not model.tie_embeddings:
        shapes["head.weight"] = (model.vocab_size, h)
    return shapes


def constant_value(name: str) -> float | None:
    """The value a parameter starts with: 1 for a norm's weight, 0 for a bias, None for a matrix (drawn at random)."""
    if name.endswith(".bias"):
        return 0.0
    return 1.0 if name.endswith("norm.weight") else None


def initial_weight(model: Model, seed: int, name: str) -> np.ndarray:
    """The parameter `name` at the start of training, float32: a matrix from N(0, 0.02), a norm or bias constant.

    Raises KeyError for a name the model does not have.
    """
    shape = parameter_shapes(model)[name]
    constant = constant_value(name)
    if constant is not None:
        return np.full(shape, constant, dtype=np.float32)
    # RandomState and not Generator: NumPy promises that its streams never change (NEP 19), and the frameworks'
    # environments hold different versions of NumPy.
    stream = np.random.RandomState(_stream_key(seed, name))
    return (stream.standard_normal(shape) * STANDARD_DEVIATION).astype(np.float32)


def stream_seed(*parts: object) -> int:
    """A 63-bit seed for whoever draws natively, different for every parameter, shard or whatever `parts` tell apart."""
    return int.from_bytes(_digest(*parts)[:8], "little") >> 1


def _stream_key(seed: int, name: str) -> np.ndarray:
    return np.frombuffer(_digest(seed, name), dtype="<u4")


def _digest(*parts: object) -> bytes:
    return hashlib.sha256("/".join(map(str, parts)).encode()).digest()


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
