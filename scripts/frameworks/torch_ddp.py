"""PyTorch DistributedDataParallel: a whole model on every device, gradients all-reduced during the backward pass."""

from __future__ import annotations

from contracts.adaptor import Engine, Framework, Job
from contracts.shown_as import ShownAs
from contracts.storage import StateStorage, ddp_gradient_bytes
from frameworks.torch.layouts import torch_reason
from workloads.training.training_cell import TrainingCell

FRAMEWORK = Framework(version=1, environment="torch", parallelism=frozenset({"data"}), packages=("torch",))


def shown_as() -> ShownAs:
    """Return its name and its colour in tables and figures."""
    return ShownAs("PyTorch DDP", style=4)


def unsupported_reason(cell: TrainingCell) -> str | None:
    """None when this adaptor can run the cell, else why not."""
    return torch_reason(cell)


def stored_state(cell: TrainingCell) -> StateStorage:
    """All on every GPU, gradients also in the buckets that are reduced."""
    return StateStorage(gradient_bytes=ddp_gradient_bytes(cell))


def create_engine(job: Job) -> Engine:
    """The model under DistributedDataParallel, at one device too."""
    from frameworks.torch.torch_data_parallel import replicate_with_ddp, synchronised_by_ddp
    from frameworks.torch.torch_engine import MicroBatches, optimizer_engine
    from frameworks.torch.torch_model import build_on_meta, make_optimizer, materialize
    from frameworks.torch.torch_setup import start

    cell = job.cell
    runtime = start(job)
    model = build_on_meta(cell)
    initial_weights = materialize(model, cell, runtime.device)
    optimizer = make_optimizer(model.parameters(), cell)
    replica = replicate_with_ddp(model, runtime.device)
    return optimizer_engine(
        runtime,
        cell,
        optimizer,
        MicroBatches(replica, cell, synchronised_by_ddp(replica)),
        initial_weights=initial_weights,
        data_rank=job.rank,
        data_size=job.world_size,
    )
