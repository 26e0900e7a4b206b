"""Our initial weights (models/weights.py) as Megatron-core's GPT model holds them: under other names, with query, key
and value in one parameter, and a part of it on each tensor rank. Pure functions on NumPy arrays, and the loading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from models.weights import initial_weight
from workloads.training.training_cell import TrainingCell

# Megatron's modules: ours, then which axis of the weight and of the bias tensor ranks split (None: whole on each).
MODULES = {
    "embedding.word_embeddings": (("token_embedding",), 0, None),
    "embedding.position_embeddings": (("position_embedding",), None, None),
    "input_layernorm": (("attention_norm",), None, None),
    "self_attention.linear_qkv": (("attention.query", "attention.key", "attention.value"), 0, 0),
    "self_attention.linear_proj": (("attention.output",), 1, None),
    "pre_mlp_layernorm": (("feed_forward_norm",), None, None),
    "mlp.linear_fc1": (("feed_forward.up",), 0, 0),
    "mlp.linear_fc2": (("feed_forward.down",), 1, None),
    "decoder.final_layernorm": (("final_norm",), None, None),
    "output_layer": (("head",), 0, None),
}
# Transformer Engine keeps a norm inside the projection that follows it.
NORMS_INSIDE = {
    "self_attention.linear_qkv.layer_norm_": "input_layernorm.",
    "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm.",
}


def parameter_source(name: str, first_layer: int, tied: bool) -> tuple[tuple[str, ...], int | None]:
    """What Megatron's parameter `name` is made of: our names, and the axis that tensor ranks split.

    first_layer: which of the model's layers the chunk begins with. tied: the head is the token embedding.
    Raises KeyError for a name that no model of ours has.
    """
    prefix = ""
    if name.startswith("decoder.layers."):
        _, _, index, name = name.split(".", 3)
        prefix = f"blocks.{first_layer + int(index)}."
        for inside, alone in NORMS_INSIDE.items():
            name = name.replace(inside, alone)
    module, _, kind = name.rpartition(".")
    if tied and module == "output_layer":
        module = "embedding.word_embeddings"
    ours, weight_axis, bias_axis = MODULES[module]
    return tuple(f"{prefix}{one}.{kind}" for one in ours), weight_axis if kind == "weight" else bias_axis


def tensor_shard(
    wholes: Sequence[np.ndarray], axis: int | None, num_heads: int, tensor_rank: int, tensor_size: int
) -> np.ndarray:
    """One tensor rank's part of a parameter. Several `wholes` are query, key and value, which Megatron keeps as one:
    the first head's rows of the query, the key and the value, then the second head's, ...
    """
    whole = wholes[0]
    if len(wholes) > 1:
        by_head = [part.reshape(num_heads, -1, *part.shape[1:]) for part in wholes]
        whole = np.concatenate(by_head, axis=1).reshape(-1, *whole.shape[1:])
    return whole if axis is None else np.split(whole, tensor_size, axis)[tensor_rank]


def load_shared_weights(model: Any, cell: TrainingCell, tensor_rank: int) -> None:
    """Fill a GPTModel, whole or a pipeline's chunk, with this rank's part of the weights that all frameworks share."""
    import torch

    first_layer = model.decoder.layers[0].layer_number - 1  # Megatron counts from 1
    for name, parameter in model.named_parameters():
        ours, axis = parameter_source(name, first_layer, cell.model.tie_embeddings)
        wholes = [initial_weight(cell.model, cell.seed, one) for one in ours]
        shard = tensor_shard(wholes, axis, cell.model.num_heads, tensor_rank, cell.layout.tensor_parallel)
        assert shard.shape == parameter.shape, f"{name}: {shard.shape} is not {parameter.shape}"
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(shard)))
