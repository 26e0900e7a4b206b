"""AxoNN's adaptor: every layout trains like one process of plain torch, or says beforehand that it cannot."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import factories
from framework_processes import train_cells
from frameworks import axonn
from models.gpt import Gpt
from workloads.training.training_cell import TrainingCell

# The first test that needs it may have to install the environment.
pytestmark = pytest.mark.timeout(900)

TOLERANCE = 1e-4
MODEL = Gpt("tiny", num_layers=4, hidden_size=32, num_heads=4, seq_length=32, vocab_size=512)


make_cell = partial(factories.trained_cell, framework="axonn", model=MODEL)


REFERENCE = make_cell(framework="torch_plain", micro_batch=8)
# By the number of processes, which MPI fixes for all cells of one start.
CELLS = {
    1: {"alone": make_cell(), "alone, full": make_cell(checkpointing="full")},
    2: {
        "data": make_cell(2),
        "depth": make_cell(2, depth=2),
        "rows": make_cell(tensor=2),
        "rows, full": make_cell(tensor=2, checkpointing="full"),
        "columns": make_cell(tensor=2, columns=2),
        "pipeline": make_cell(pipeline=2),
        "pipeline, selective": make_cell(pipeline=2, checkpointing="selective"),
    },
    4: {
        "data x depth": make_cell(4, micro_batch=1, depth=2),
        "rows x depth": make_cell(2, 2, depth=2),
        "rows x columns": make_cell(tensor=4, columns=2),
        "rows x pipeline": make_cell(1, 2, 2),
        "data x pipeline": make_cell(2, 1, 2),
        "pipeline": make_cell(pipeline=4),
    },
}


@pytest.fixture(scope="module")
def reference() -> list[float]:
    return train_cells([REFERENCE])[0]


@pytest.mark.slow
@pytest.mark.parametrize("processes", list(CELLS))
def test_every_layout_trains_like_plain_torch(processes: int, reference: list[float], axonn_paper_python: str) -> None:
    cells = CELLS[processes]
    assert not [name for name, cell in cells.items() if axonn.unsupported_reason(cell)]
    mpiexec = str(Path(axonn_paper_python).parent / "mpiexec")
    trained = train_cells(list(cells.values()), 600, axonn_paper_python, mpiexec)
    assert reference[0] - reference[-1] > 0.1
    for name, losses in zip(cells, trained, strict=True):
        largest = max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))
        assert largest <= TOLERANCE, f"{name}: {largest:.1e}"


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (make_cell(tensor=4, columns=8), "8 columns do not divide 4 tensor ranks"),
        (make_cell(2, depth=4), "depth of 4 does not divide 2 data ranks"),
        (make_cell(2, 1, 2, depth=2), "a depth above 1 goes with one pipeline stage"),
        (make_cell(1, 2, 4), "reductions may meet in different orders"),
        (make_cell(pipeline=2, micro_batch=8), "at least two micro-batches"),
        (make_cell(tensor=2, checkpointing="selective"), "would be reduced twice"),
        (make_cell(pipeline=2, checkpointing="selective"), None),
        (make_cell(tensor=3, model=Gpt("odd", 4, 48, 3, 32, 512)), "vocabulary of 512 cannot be cut evenly"),
        (make_cell(pipeline=2, model=Gpt("tied", 4, 32, 4, 32, 512, tie_embeddings=True)), "no embeddings tied"),
        (make_cell(model=Gpt("tied", 4, 32, 4, 32, 512, tie_embeddings=True)), None),
        (factories.make_cell("axonn", precision="bf16"), "in fp32, not bf16"),
        (factories.make_cell("axonn", precision="bf16", device="cuda"), None),
    ],
)
def test_what_cannot_run_is_said_beforehand(cell: TrainingCell, reason: str | None) -> None:
    said = axonn.unsupported_reason(cell)
    assert said is None if reason is None else reason in said
