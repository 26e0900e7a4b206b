"""Batch times from the stamps of all ranks, with the checks that tell a measurement from a number.

A record holds 11 batches; the first is warm-up and enters no mean (DESIGN.md, "One loop for all"). Stamps of different
ranks lie on different clocks, so only differences on one rank are ever taken.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.spread import mean, sample_deviation
from workloads.training.loop import NUM_BATCHES, NUM_WARMUP_BATCHES

NUM_TIMED = NUM_BATCHES - NUM_WARMUP_BATCHES

# The window of the ten timed batches and the sum of their parts differ by what the loop does between two batches
# (nothing that takes time) and by how far ranks run out of step: with a collective in every batch that is a small part
# of one batch. 5 % is beyond both; the absolute floor keeps clock and interpreter noise of tiny batches out.
WINDOW_TOLERANCE = 0.05
WINDOW_FLOOR_S = 0.001

# Median of the last five timed batches over that of the first five. Medians, because one slow batch is noise, which
# batch_time_std_s shows, while a run that keeps getting slower has no mean worth printing.
DRIFT_RATIO = 1.2

# A batch that took over twice the median of the ten, or under half of it, is an outlier. A rule by deviations from the
# mean cannot see one value of ten: it widens the deviation itself, and never lies more than 9 / sqrt(10) = 2.85 of them
# away. A rule by the median of deviations calls ordinary jitter of a very steady run far away. The median itself is
# moved by neither, and a batch at twice the median moves the mean by a tenth, which is what comparisons are about.
OUTLIER_RATIO = 2.0


@dataclass(frozen=True)
class Timing:
    """What the stamps of one record amount to; every time is in seconds for one batch.

    batch_time_s: mean over the ten timed batches of the slowest rank's time; batch_time_std_s: its sample deviation.
    batch_time_median_s: their median; first_half_batch_time_s, second_half_batch_time_s: those of five batches each.
    input_time_s: mean over the same batches of the longest wait for input.
    window_batch_time_s: a tenth of the time from the start of the first timed batch to the end of the last, on the
    rank where that is longest; it contains the waits for input of nine batches.
    timing_check: "ok", or those of "window" (the two disagree), "drift" (the halves do) and "outlier" (a batch lies far
    from the median) that hold, joined by "+"; `notes` say it in words.
    """

    batch_time_s: float
    batch_time_std_s: float
    batch_time_median_s: float
    first_half_batch_time_s: float
    second_half_batch_time_s: float
    input_time_s: float
    warmup_batch_time_s: float
    window_batch_time_s: float
    timing_check: str
    notes: tuple[str, ...]


def timing_of_ranks(ranks: Sequence[Mapping[str, Any]]) -> Timing:
    """Return batch times of a record's `ranks`, each with 11 `batch_start_s`, `batch_end_s`, `input_time_s` (in s).

    Raises ValueError where there is no rank, another number of batches, or a batch that ends before it starts.
    """
    if not ranks:
        raise ValueError("the record holds no rank, so there is nothing to time: run the cell again")
    for rank in ranks:
        for key in ("batch_start_s", "batch_end_s", "input_time_s"):
            if len(rank[key]) != NUM_BATCHES:
                raise ValueError(
                    f"rank {rank['rank']} has {len(rank[key])} values in {key}, not {NUM_BATCHES} "
                    f"(one warm-up batch and {NUM_TIMED} timed ones): forget this record and run the cell again"
                )
    per_rank = [[end - start for start, end in zip(r["batch_start_s"], r["batch_end_s"], strict=True)] for r in ranks]
    slowest = [max(times) for times in zip(*per_rank, strict=True)]
    if min(min(times) for times in per_rank) <= 0:
        raise ValueError(
            "a batch ends before it starts: the stamps are wrong, forget this record and run the cell again"
        )
    waits = [max(times) for times in zip(*(r["input_time_s"] for r in ranks), strict=True)]

    timed, timed_waits = slowest[NUM_WARMUP_BATCHES:], waits[NUM_WARMUP_BATCHES:]
    window_s = max(r["batch_end_s"][-1] - r["batch_start_s"][NUM_WARMUP_BATCHES] for r in ranks)
    # The first timed batch starts with its input at hand, so its wait lies before the window.
    parts_s = sum(timed) + sum(timed_waits[1:])
    if not math.isfinite(window_s) or not math.isfinite(parts_s):
        raise ValueError("a stamp is not finite: forget this record and run the cell again")
    half = NUM_TIMED // 2
    median, first, second = (statistics.median(part) for part in (timed, timed[:half], timed[half:]))
    notes = {
        "window": _window_note(window_s, parts_s),
        "drift": _drift_note(first, second),
        "outlier": _outlier_note(timed, median),
    }
    return Timing(
        batch_time_s=mean(timed),
        batch_time_std_s=sample_deviation(timed),
        batch_time_median_s=median,
        first_half_batch_time_s=first,
        second_half_batch_time_s=second,
        input_time_s=mean(timed_waits),
        warmup_batch_time_s=slowest[0],
        window_batch_time_s=window_s / NUM_TIMED,
        timing_check="+".join(name for name, note in notes.items() if note) or "ok",
        notes=tuple(note for note in notes.values() if note),
    )


def _window_note(window_s: float, parts_s: float) -> str:
    if abs(window_s - parts_s) <= max(WINDOW_TOLERANCE * parts_s, WINDOW_FLOOR_S * NUM_TIMED):
        return ""
    return f"timing: the window took {window_s:.4g} s, its batches and waits add up to {parts_s:.4g} s"


def _drift_note(first: float, second: float) -> str:
    if first / DRIFT_RATIO <= second <= first * DRIFT_RATIO:
        return ""
    return (
        f"timing: drifts from {first:.4g} s a batch in the first half (first_half_batch_time_s) to {second:.4g} s in "
        "the second (second_half_batch_time_s)"
    )


def _outlier_note(timed: Sequence[float], median: float) -> str:
    far = [seconds for seconds in timed if not median / OUTLIER_RATIO <= seconds <= median * OUTLIER_RATIO]
    if not far:
        return ""
    farthest = max(far, key=lambda seconds: max(seconds / median, median / seconds))
    return (
        f"timing: {len(far)} of {NUM_TIMED} batches far from the median of {median:.4g} s (batch_time_median_s), the "
        f"farthest took {farthest:.4g} s, and the mean is {mean(timed):.4g} s"
    )
