"""Run adaptors on real processes, one per rank. All cells share them: importing torch costs more than training does.

As a script it is one rank: it reads cell identities from a JSON file, trains those that have such a rank for some steps
and writes their losses. `train_cells` starts the ranks, waits and cleans up.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from contracts.adaptor import Job
from workloads.rendezvous import meeting_variables
from workloads.training.batches import BatchReader
from workloads.training.training_cell import TrainingCell, cell_from_identity

TESTS = Path(__file__).resolve().parent.parent
SCRIPTS = TESTS.parent / "scripts"
PATHS = [str(SCRIPTS), str(TESTS / "data")]
STEPS = 11


def corpus(vocab_size: int) -> np.ndarray:
    """A small text with structure to learn: uint16, each token mostly decided by the one before."""
    stream = np.random.RandomState(7)
    tokens = np.cumsum(stream.randint(1, 4, size=4000)) % vocab_size
    return tokens.astype(np.uint16)


def train_cells(
    cells: list[TrainingCell], timeout_s: float = 240.0, python: str = sys.executable, mpiexec: str | None = None
) -> list[list[float]]:
    """The losses of each cell's first STEPS batches, averaged over the ranks that hold one.

    python: the interpreter of the frameworks' environment. mpiexec: starts the ranks, for frameworks under MPI; all
    cells then have the same number of them.

    Raises RuntimeError with the ranks' output when one fails or hangs: each then says where.
    """
    world_size = max(cell.num_gpus for cell in cells)
    with tempfile.TemporaryDirectory() as folder:
        order = Path(folder) / "cells.json"
        order.write_text(json.dumps([cell.identity() for cell in cells]))
        arguments = ["--cells", str(order), "--timeout-s", str(timeout_s)]
        commands = [[python, __file__, *arguments, "--rank", str(rank)] for rank in range(world_size)]
        if mpiexec:
            commands = [[mpiexec, *join_contexts(commands)]]
        # Files and not pipes: a rank that nobody reads would wait, and the others for it.
        outputs = [Path(folder, f"output.{index}.txt") for index in range(len(commands))]
        ranks = [_start(command, output) for command, output in zip(commands, outputs, strict=True)]
        try:
            for rank in ranks:
                rank.wait(timeout=timeout_s + 60)
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.wait()
        if any(rank.returncode for rank in ranks):
            raise RuntimeError("\n".join(f"{output.name}:\n{output.read_text()}" for output in outputs))
        results = [json.loads(Path(folder, f"losses.{rank}.json").read_text()) for rank in range(world_size)]
    return [
        _mean_over_ranks([result[index] for result in results[: cell.num_gpus]]) for index, cell in enumerate(cells)
    ]


def join_contexts(commands: list[list[str]]) -> list[str]:
    """Arguments of mpiexec that start one process for each command, in this order."""
    contexts = [["-n", "1", *command] for command in commands]
    return [word for index, context in enumerate(contexts) for word in ([":"] * (index > 0) + context)]


def _start(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(PATHS),
    }
    with output.open("w") as file:
        return subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)


def _mean_over_ranks(losses: list[list[float | None]]) -> list[float]:
    held = [rank for rank in losses if rank[0] is not None]
    return [sum(values) / len(held) for values in zip(*held, strict=True)]


def _train(cell: TrainingCell, rank: int) -> list[float | None]:
    adaptor = _import_adaptor(cell.framework)
    if (reason := adaptor.unsupported_reason(cell)) is not None:
        raise ValueError(reason)
    engine = adaptor.create_engine(Job(cell, rank, cell.num_gpus, rank))
    with closing(engine):
        shape = cell.model
        batches = BatchReader(
            corpus(shape.vocab_size),
            shape.seq_length,
            shape.vocab_size,
            cell.global_batch_size,
            engine.data_rank,
            engine.data_size,
        )
        engine.barrier()
        handles = [engine.step(engine.load(batches.read(step))) for step in range(STEPS)]
        engine.wait()
        losses = [engine.read_loss(handle) for handle in handles]
        engine.barrier()
    return losses


def _import_adaptor(framework: str) -> Any:
    is_test_double = (TESTS / "data" / f"{framework}.py").is_file()
    return importlib.import_module(framework if is_test_double else f"frameworks.{framework}")


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=Path, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--timeout-s", type=float, required=True, help="then say where it hangs, and end")
    arguments = parser.parse_args()
    faulthandler.dump_traceback_later(arguments.timeout_s, exit=True)
    rank = arguments.rank
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    losses: list[list[float | None] | None] = []
    for index, identity in enumerate(json.loads(arguments.cells.read_text())):
        cell = cell_from_identity(identity)
        meeting = arguments.cells.parent / f"meeting{index}"
        meeting.mkdir(exist_ok=True)
        os.environ |= meeting_variables(meeting, "127.0.0.1", f"cell {index}")
        os.environ |= {"WORLD_SIZE": str(cell.num_gpus), "LOCAL_WORLD_SIZE": str(cell.num_gpus)}
        losses.append(_train(cell, rank) if rank < cell.num_gpus else None)
    (arguments.cells.parent / f"losses.{rank}.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    _main()
