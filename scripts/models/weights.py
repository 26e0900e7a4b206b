"""Initial weights that every framework can load: NumPy arrays, a pure function of the seed and the parameter's name.

Each parameter has a random stream of its own, so that a rank draws exactly the parameters it holds and the layout
changes nothing. Names and shapes are the model's own (`parameter_shapes` of its architecture).
"""

from __future__ import annotations

import hashlib

import numpy as np

from contracts.model import Model

STANDARD_DEVIATION = 0.02

# Up to this many parameters every framework starts from these weights. Drawing costs each rank about 6 s per 100
# million parameters; above, an engine draws its own shards on the device and says so (`initial_weights = "native"`).
SHARED_WEIGHTS_LIMIT = 200_000_000


def are_shared(model: Model) -> bool:
    """Whether the model is small enough that all frameworks start from the weights drawn here."""
    return model.num_parameters <= SHARED_WEIGHTS_LIMIT


def constant_value(name: str) -> float | None:
    """The value a parameter starts with: 1 for a norm's weight, 0 for a bias, None for a matrix (drawn at random)."""
    if name.endswith(".bias"):
        return 0.0
    return 1.0 if name.endswith("norm.weight") else None


def initial_weight(model: Model, seed: int, name: str) -> np.ndarray:
    """The parameter `name` at the start of training, float32: a matrix from N(0, 0.02), a norm or bias constant.

    Raises KeyError for a name the model does not have.
    """
    shape = model.parameter_shapes()[name]
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
