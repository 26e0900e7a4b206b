"""A wrong adaptor, for the tests: data parallelism that forgets to all-reduce the gradients.

Each rank trains on its share as if it were alone. Nothing crashes, losses fall, and steps take less time than right
ones: only the comparison of losses can tell.
"""

from __future__ import annotations

from matrix.cells import Cell
from training.contract import Engine, Framework, Job

FRAMEWORK = Framework(version=1, environment="torch", parallelism=frozenset({"data"}), packages=("torch",))


def unsupported_reason(cell: Cell) -> str | None:
    """None: it runs everything, wrongly."""
    return None


def create_engine(job: Job) -> Engine:
    """A whole model on every rank, and no word between them."""
    from training.torch_engine import MicroBatches, optimizer_engine
    from training.torch_model import build_on_meta, make_optimizer, materialize
    from training.torch_setup import start

    cell = job.cell
    runtime = start(job)
    model = build_on_meta(cell)
    initial_weights = materialize(model, cell, runtime.device)
    return optimizer_engine(
        runtime,
        cell,
        make_optimizer(model.parameters(), cell),
        MicroBatches(model, cell),
        initial_weights=initial_weights,
        data_rank=job.rank,
        data_size=job.world_size,
    )
