"""PyTorch FSDP2 (`fully_shard`): parameters, gradients and optimizer states sharded over the data ranks, per block.

`reshard_after_forward`: free a block's gathered parameters after its forward pass and gather them again for the
backward pass (ZeRO stage 3), or keep them in between (less communication, more memory).
"""

from __future__ import annotations

from matrix.cells import Cell
from training.contract import Engine, Framework, Job
from training.layouts import torch_reason

FRAMEWORK = Framework(
    version=1,
    environment="torch",
    parallelism=frozenset({"data"}),
    options={"reshard_after_forward": (True, False)},
    packages=("torch",),
)


def unsupported_reason(cell: Cell) -> str | None:
    """None when this adaptor can run the cell, else why not."""
    return torch_reason(cell)


def create_engine(job: Job) -> Engine:
    """The model sharded over all devices; half precision is FSDP's own mixed precision, not autocast."""
    from training.torch_data_parallel import shard_fully, synchronised_by_fsdp
    from training.torch_engine import MicroBatches, optimizer_engine
    from training.torch_model import build_on_meta, make_optimizer, materialize
    from training.torch_setup import start

    cell = job.cell
    runtime = start(job)
    mesh = runtime.mesh(data=job.world_size)
    model = build_on_meta(cell, autocast=False)
    shard_fully(model, mesh, cell.precision, reshard_after_forward=FRAMEWORK.option(cell, "reshard_after_forward"))
    initial_weights = materialize(model, cell, runtime.device)
    return optimizer_engine(
        runtime,
        cell,
        make_optimizer(model.parameters(), cell),
        MicroBatches(model, cell, synchronised_by_fsdp(model)),
        initial_weights=initial_weights,
        data_rank=job.rank,
        data_size=job.world_size,
    )
