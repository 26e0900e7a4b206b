"""A wrong adaptor, for the tests: data parallelism that makes one of two mistakes with the gradients.

`forgets`: each rank trains on its share as if it were alone. `sums`: the gradients of all ranks are added up, not
averaged. Nothing crashes, losses fall, and steps take no more time than right ones: only the comparison of losses can
tell.
"""

from __future__ import annotations

from contracts.adaptor import Engine, Framework, Job
from workloads.training.training_cell import TrainingCell

FRAMEWORK = Framework(
    version=1,
    environment="torch",
    parallelism=frozenset({"data"}),
    options={"mistake": ("forgets", "sums")},
    packages=("torch",),
)


def unsupported_reason(cell: TrainingCell) -> str | None:
    """None: it runs everything, wrongly."""
    return None


def create_engine(job: Job) -> Engine:
    """A whole model on every rank, and no word between them, or one too many."""
    import torch.distributed as dist

    from frameworks.torch.torch_engine import MicroBatches, optimizer_engine
    from frameworks.torch.torch_model import build_on_meta, make_optimizer, materialize
    from frameworks.torch.torch_setup import start

    cell = job.cell
    runtime = start(job)
    model = build_on_meta(cell)
    initial_weights = materialize(model, cell, runtime.device)
    optimizer = make_optimizer(model.parameters(), cell)
    if FRAMEWORK.option(cell, "mistake") == "sums":

        def add_up(*_: object) -> None:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)

        optimizer.register_step_pre_hook(add_up)
    return optimizer_engine(
        runtime,
        cell,
        optimizer,
        MicroBatches(model, cell),
        initial_weights=initial_weights,
        data_rank=job.rank,
        data_size=job.world_size,
    )
