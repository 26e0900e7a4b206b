"""What torch's CPU allocator hands out at most, in this process or in those of a pipeline's stages.

As a script it is one stage: it takes the first step of each cell and prints their peaks in bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from framework_processes import PATHS
from workloads.rendezvous import LOOPBACK, meeting_variables
from workloads.training.training_cell import TrainingCell, cell_from_identity

TIMEOUT_S = 120.0


def peak_bytes(run: Callable[[], Any]) -> int:
    """Return the most that torch's CPU allocator had handed out during `run`, over what it had before."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = profiler.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak


def stage_peaks(cells: Sequence[TrainingCell]) -> list[list[int]]:
    """Return the peaks of the first steps of torch_pipeline cells, which have the same number of stages, by stage.

    Raises RuntimeError where a stage fails.
    """
    stages = cells[0].num_gpus
    environment = os.environ | {
        "WORLD_SIZE": str(stages),
        "LOCAL_WORLD_SIZE": str(stages),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(PATHS),
    }
    order = json.dumps([cell.identity() for cell in cells])
    with tempfile.TemporaryDirectory() as meetings:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, order, meetings],
                env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(stages)
        ]
        try:
            outputs = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.communicate()
    if any(rank.returncode for rank in ranks):
        raise RuntimeError("\n".join(errors for _, errors in outputs))
    return [list(peaks) for peaks in zip(*(json.loads(printed) for printed, _ in outputs), strict=True)]


def _first_step_bytes(cell: TrainingCell) -> int:
    import numpy as np

    from contracts.adaptor import Job
    from frameworks import torch_pipeline

    rank = int(os.environ["RANK"])
    with closing(torch_pipeline.create_engine(Job(cell, rank, cell.num_gpus, rank))) as engine:
        batch = engine.load(np.zeros((cell.global_batch_size, cell.model.seq_length + 1), dtype=np.int64))
        engine.barrier()
        peak = peak_bytes(lambda: engine.step(batch))
        engine.barrier()
    return peak


def _main() -> None:
    peaks = []
    for index, identity in enumerate(json.loads(sys.argv[1])):
        meeting = Path(sys.argv[2]) / str(index)
        meeting.mkdir(exist_ok=True)
        os.environ |= meeting_variables(meeting, LOOPBACK, f"cell {index}")
        peaks.append(_first_step_bytes(cell_from_identity(identity)))
    print(json.dumps(peaks))


if __name__ == "__main__":
    _main()
