"""Building the model and its optimizer the same way under every torch wrapper.

The order is always: structure on the meta device, the wrapper's sharding, memory on the device, initial weights. No
rank ever holds more of the model than its share (one whole parameter at a time where the weights are shared ones).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor

from frameworks.torch.decoder import GPT
from frameworks.torch.torch_setup import half_type
from models.weights import STANDARD_DEVIATION, are_shared, constant_value, initial_weight, stream_seed
from workloads.training.training_cell import OPTIMIZER, TrainingCell

# fp16 gradients need scaling into fp16's range. The factor is static, so that no step is ever skipped and none waits
# for an overflow check; 2^16 is where torch's own dynamic scaler starts, and a power of two rounds nothing.
LOSS_SCALE = {"fp32": 1.0, "bf16": 1.0, "fp16": 2.0**16}


def build_on_meta(cell: TrainingCell, *, blocks: range | None = None, autocast: bool = True) -> GPT:
    """The cell's model, or the pipeline stage that holds `blocks`, without memory.

    autocast: run half-precision cells as autocast over float32 weights; switched off where a wrapper casts instead.
    """
    with torch.device("meta"):
        return GPT(
            cell.model,
            blocks=blocks,
            checkpointing=cell.activation_checkpointing,
            autocast_dtype=half_type(cell.precision) if autocast else None,
        )


def materialize(model: nn.Module, cell: TrainingCell, device: torch.device) -> str:
    """Give the model memory on `device` and its initial weights; returns where they came from, "shared" or "native".

    Every rank fills its own shards without communication. Native weights are another draw from the same distribution:
    each shard has its own stream, replicas have the same one.
    """
    model.to_empty(device=device)
    for name, parameter in model.named_parameters():
        initialize(parameter, cell, name)
    return "shared" if are_shared(cell.model) else "native"


def initialize(parameter: nn.Parameter, cell: TrainingCell, name: str) -> None:
    """Give one parameter, whole or this rank's shard of it, the initial weights of our parameter `name`."""
    with torch.no_grad():
        if are_shared(cell.model):
            _copy_shared(parameter, torch.from_numpy(initial_weight(cell.model, cell.seed, name)))
        else:
            _draw_native(parameter, name, cell.seed)


def make_optimizer(
    parameters: Iterable[nn.Parameter], cell: TrainingCell, *, gradients_are_scaled: bool = True
) -> torch.optim.AdamW:
    """AdamW as the cell and `OPTIMIZER` say, at a constant rate, with torch's fused update on every device.

    gradients_are_scaled: nobody takes the loss scale off the gradients, which is what our own engine leaves to this.

    With a loss scale S all gradients arrive multiplied by S. AdamW divides the first moment (then S m) by the root of
    the second (then S sqrt(v)) plus eps; with S eps in place of eps, S cancels and the update is exactly the unscaled
    one: nothing has to be divided by S, and no weight decay is there to disturb it.
    """
    return torch.optim.AdamW(
        _groups_of_one_kind(parameters),
        lr=cell.learning_rate,
        betas=tuple(OPTIMIZER["betas"]),
        eps=cell.adam_epsilon * (LOSS_SCALE[cell.precision] if gradients_are_scaled else 1.0),
        weight_decay=OPTIMIZER["weight_decay"],
        fused=True,
    )


def _groups_of_one_kind(parameters: Iterable[nn.Parameter]) -> list[dict[str, list[nn.Parameter]]]:
    """One fused update cannot mix plain tensors and DTensors, nor DTensors of different meshes."""
    groups: dict[DeviceMesh | None, list[nn.Parameter]] = {}
    for parameter in parameters:
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        groups.setdefault(mesh, []).append(parameter)
    return [{"params": group} for group in groups.values()]


def _copy_shared(parameter: nn.Parameter, whole: Tensor) -> None:
    if isinstance(parameter, DTensor):
        shard = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.to_local().copy_(shard.to_local())
    else:
        parameter.copy_(whole)


def _draw_native(parameter: nn.Parameter, name: str, seed: int) -> None:
    local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    constant = constant_value(name)
    if constant is not None:
        local.fill_(constant)
        return
    generator = torch.Generator(device=local.device)
    generator.manual_seed(stream_seed(seed, name, *_shard_coordinates(parameter)))
    local.normal_(0.0, STANDARD_DEVIATION, generator=generator)


def _shard_coordinates(parameter: nn.Parameter) -> list[int]:
    """Which shard of the parameter this rank holds; the same on ranks that hold replicas of one shard."""
    if not isinstance(parameter, DTensor):
        return []
    mesh = parameter.device_mesh
    # A placement that is no replica is a shard, FSDP's strided one over a tensor shard included.
    return [mesh.get_local_rank(axis) for axis, kind in enumerate(parameter.placements) if not kind.is_replicate()]
