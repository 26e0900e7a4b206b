"""Plain PyTorch: one process, no wrapper around the model. Every other framework's losses are compared with its."""

from __future__ import annotations

from contracts.adaptor import Engine, Framework, Job
from contracts.shown_as import ShownAs
from frameworks.torch.layouts import torch_reason
from workloads.training.training_cell import TrainingCell

FRAMEWORK = Framework(version=1, environment="torch", parallelism=frozenset(), packages=("torch",))


def shown_as() -> ShownAs:
    """Return its name and its colour in tables and figures."""
    return ShownAs("PyTorch", style=8)


def unsupported_reason(cell: TrainingCell) -> str | None:
    """None when this adaptor can run the cell, else why not."""
    return torch_reason(cell)


def create_engine(job: Job) -> Engine:
    """The model as it is, on one device."""
    from frameworks.torch.torch_engine import MicroBatches, optimizer_engine
    from frameworks.torch.torch_model import build_on_meta, make_optimizer, materialize
    from frameworks.torch.torch_setup import start

    cell = job.cell
    runtime = start(job, process_group=False)
    model = build_on_meta(cell)
    initial_weights = materialize(model, cell, runtime.device)
    optimizer = make_optimizer(model.parameters(), cell)
    return optimizer_engine(runtime, cell, optimizer, MicroBatches(model, cell), initial_weights=initial_weights)
