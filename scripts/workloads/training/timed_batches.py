"""What a rank of the training workload does: build the engine, run the batches, report raw facts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from contracts.adaptor import Engine, Job
from contracts.placement import node_of_rank
from contracts.workload import Arrival
from corpus.verify import open_tokens
from workloads.packages import versions
from workloads.process_facts import process_facts, speed_variables
from workloads.training.batches import BatchReader
from workloads.training.loop import NUM_BATCHES, Timings, run_batches

MATMUL_SIZE = 2048
MATMUL_REPEATS = 4
# A line takes some ten microseconds.
LONG_BATCH_S = 2.0


def train(job: Job, adaptor: ModuleType, tokens: Path, arrival: Arrival) -> tuple[Engine, dict[str, Any]]:
    """Run the cell on this rank; return the engine, still open, and this rank's part of the record."""
    given = speed_variables()
    arrival.mark_arrived(job.rank)
    engine: Engine = adaptor.create_engine(job)
    arrival.mark_started(job.rank)
    process = process_facts(given, getattr(engine, "num_threads", None))
    cell = job.cell
    reader = BatchReader(
        open_tokens(tokens),
        cell.model.seq_length,
        cell.model.vocab_size,
        cell.global_batch_size,
        engine.data_rank,
        engine.data_size,
    )
    read = reader.read if job.rank else telling_progress(reader.read)
    timings = run_batches(engine, read)
    matmul_seconds: list[float] = []
    if cell.device.peak_is_measured:
        engine.barrier()  # the peak is what a process reaches while all of them multiply
        matmul_seconds = engine.matmul_seconds(MATMUL_SIZE, MATMUL_REPEATS)
    result = {
        "rank": rank_facts(job, engine, timings, matmul_seconds, process),
        "world_size": job.world_size,
        "settings": {"initial_weights": engine.initial_weights, **engine.settings},
        "versions": versions(adaptor.FRAMEWORK),
        "reported": {name: speed for name, speed in engine.reported_by_framework().items() if math.isfinite(speed)},
    }
    return engine, result


def telling_progress(read: Callable[[int], np.ndarray], long_s: float = LONG_BATCH_S) -> Callable[[int], np.ndarray]:
    """Wrap the reader of a batch so that it says into the log which batch begins, where batches are so long that this
    takes nothing of them. It is said while the loop waits for input, outside of a batch's time.
    """
    read_at = math.inf

    def read_and_tell(index: int) -> np.ndarray:
        nonlocal read_at
        began, read_at = read_at, time.perf_counter()
        if read_at - began >= long_s:
            print(f"batch {index + 1} of {NUM_BATCHES}", flush=True)
        return read(index)

    return read_and_tell


def rank_facts(
    job: Job, engine: Engine, timings: Timings, matmul_seconds: list[float], process: dict[str, Any]
) -> dict[str, Any]:
    """An entry of the record's `ranks`."""
    return {
        "rank": job.rank,
        "local_rank": job.local_rank,
        "host": node_of_rank(),
        "device_name": engine.device_name,
        "data_rank": engine.data_rank,
        "data_size": engine.data_size,
        "batch_start_s": timings.batch_start_s,
        "batch_end_s": timings.batch_end_s,
        "input_time_s": timings.input_time_s,
        "losses": [json_number(loss) for loss in timings.losses],
        "peak_memory_bytes": timings.peak_memory_bytes,
        "matmul_size": MATMUL_SIZE if matmul_seconds else None,
        "matmul_seconds": matmul_seconds,
        "process": process,
        "clock": {"monotonic_s": time.perf_counter(), "unix_s": time.time()},
    }


def json_number(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinities; they become the strings that float() reads back."""
    return value if value is None or math.isfinite(value) else str(value)
