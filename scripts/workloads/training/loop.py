"""The only training loop: 11 batches, a clock read only when the device is done, raw stamps and nothing derived."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contracts.adaptor import Engine

if TYPE_CHECKING:
    import numpy as np

# Bumped by hand when what the loop measures changes; part of every cell's identity.
LOOP_VERSION = 1
NUM_BATCHES = 11
NUM_WARMUP_BATCHES = 1


@dataclass(frozen=True)
class Timings:
    """One rank's stamps: seconds on its monotonic clock, one entry a batch (losses in nats per token)."""

    batch_start_s: list[float]
    batch_end_s: list[float]
    input_time_s: list[float]
    losses: list[float | None]
    peak_memory_bytes: int | None


def run_batches(engine: Engine, read_tokens: Callable[[int], np.ndarray]) -> Timings:
    """Train on NUM_BATCHES batches; `read_tokens(i)` gives this rank's share of batch i.

    A batch starts when its input is on the device and ends when the device has finished the optimizer step. The loss
    is read between two batches, outside of both.
    """
    starts: list[float] = []
    ends: list[float] = []
    input_times: list[float] = []
    losses: list[float | None] = []
    engine.barrier()
    for index in range(NUM_BATCHES):
        if index == NUM_WARMUP_BATCHES:
            engine.reset_peak_memory()
        asked = time.perf_counter()
        batch: Any = engine.load(read_tokens(index))
        engine.wait()
        start = time.perf_counter()
        loss = engine.step(batch)
        engine.wait()
        end = time.perf_counter()
        starts.append(start)
        ends.append(end)
        input_times.append(start - asked)
        losses.append(engine.read_loss(loss))
    return Timings(starts, ends, input_times, losses, engine.peak_memory_bytes())
