"""PyTorch FSDP2 (`fully_shard`): parameters, gradients and optimizer states sharded over the data ranks, per block.

`reshard_after_forward`: free a block's gathered parameters after its forward pass and gather them again for the
backward pass (ZeRO stage 3), or keep them in between (less communication, more memory).
`accumulate`: how gradients of several micro-batches are added up: "whole", reduced once a step, so that every rank
holds all of them in float32 until then, or as "shards", reduced with every micro-batch.
"""

from __future__ import annotations

from contracts.adaptor import Engine, Framework, Job
from contracts.shown_as import ShownAs
from contracts.storage import StateStorage
from frameworks.torch.layouts import torch_reason
from workloads.training.training_cell import TrainingCell

FRAMEWORK = Framework(
    version=1,
    environment="torch",
    parallelism=frozenset({"data"}),
    options={"reshard_after_forward": (True, False), "accumulate": ("whole", "shards")},
    packages=("torch",),
)


def shown_as() -> ShownAs:
    """Return its name and its colour in tables and figures."""
    return ShownAs("PyTorch FSDP", style=3)


def unsupported_reason(cell: TrainingCell) -> str | None:
    """None when this adaptor can run the cell, else why not."""
    return torch_reason(cell)


def stored_state(cell: TrainingCell) -> StateStorage:
    """Float32 shards; around a layer's backward pass, whole: two layers' parameters, gradients, what is reduced."""
    data = cell.layout.data_parallel
    number = 4 if cell.precision == "fp32" else 2
    keeps_whole = 0 if FRAMEWORK.option(cell, "reshard_after_forward") else number
    accumulates_whole = FRAMEWORK.option(cell, "accumulate") == "whole" and cell.num_micro_batches > 1
    return StateStorage(
        parameter_bytes=4 / data + keeps_whole,
        gradient_shards=1 if accumulates_whole else data,
        optimizer_shards=data,
        layer_bytes=(1 if keeps_whole else 3) * number + 4,
        ends_bytes=(1 if keeps_whole else 2) * number,
        autocast=False,
    )


def create_engine(job: Job) -> Engine:
    """The model sharded over all devices; half precision is FSDP's own mixed precision, not autocast."""
    from frameworks.torch.torch_data_parallel import shard_fully, synchronised_by_fsdp
    from frameworks.torch.torch_engine import MicroBatches, always_synchronised, optimizer_engine
    from frameworks.torch.torch_model import build_on_meta, make_optimizer, materialize
    from frameworks.torch.torch_setup import start

    cell = job.cell
    runtime = start(job)
    mesh = runtime.mesh(data=job.world_size)
    model = build_on_meta(cell, autocast=False)
    shard_fully(model, mesh, cell.precision, reshard_after_forward=FRAMEWORK.option(cell, "reshard_after_forward"))
    initial_weights = materialize(model, cell, runtime.device)
    reduce_once = FRAMEWORK.option(cell, "accumulate") == "whole"
    return optimizer_engine(
        runtime,
        cell,
        make_optimizer(model.parameters(), cell),
        MicroBatches(model, cell, synchronised_by_fsdp(model) if reduce_once else always_synchronised),
        initial_weights=initial_weights,
        data_rank=job.rank,
        data_size=job.world_size,
    )
