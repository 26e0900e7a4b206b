"""What every number of one record has to be, from the files record.json and the standard library alone.

Written from the formulas of the papers (arXiv:2110.13005, arXiv:2203.12533) and the rules for repeats, not from the
code of scripts/metrics or scripts/papers, so that a mistake there is not made here too: nothing of them is imported.
An unknown number is None. A spread is a sample standard deviation over repeats, carried over to first order.
"""

import json
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

V100, A100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"
PEAK_FLOPS_PER_S = {V100: 125e12, A100: 312e12}

Key = tuple[str, int]  # cell id, repeat
Numbers = dict[str, Any]


def read_records(cells: Path) -> dict[Key, Numbers]:
    """Return every record below this folder, by cell id and repeat."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(cells.rglob("record.json"))]
    return {(record["cell_id"], record["repeat"]): record for record in records}


def times_of(record: Numbers) -> Numbers:
    """Return what the stamps amount to: the slowest rank counts, and the first of 11 batches does not."""
    ranks = record["ranks"]
    slowest, waits = [], []
    for batch in range(11):
        slowest.append(max(rank["batch_end_s"][batch] - rank["batch_start_s"][batch] for rank in ranks))
        waits.append(max(rank["input_time_s"][batch] for rank in ranks))
    timed = slowest[1:]
    median = statistics.median(timed)
    first, second = statistics.median(timed[:5]), statistics.median(timed[5:])
    window = max(rank["batch_end_s"][10] - rank["batch_start_s"][1] for rank in ranks)
    parts = math.fsum(timed) + math.fsum(waits[2:])
    checks = {
        # A window below 10 ms more or less is noise of the clock.
        "window": abs(window - parts) > max(0.05 * parts, 0.01),
        "drift": max(first, second) > 1.2 * min(first, second),
        "outlier": max(timed) > 2 * median or min(timed) < median / 2,
    }
    return {
        "batch_time_s": statistics.fmean(timed),
        "batch_time_std_s": statistics.stdev(timed),
        "batch_time_median_s": median,
        "first_half_batch_time_s": first,
        "second_half_batch_time_s": second,
        "input_time_s": statistics.fmean(waits[1:]),
        "warmup_batch_time_s": slowest[0],
        "window_batch_time_s": window / 10,
        "timing_check": "+".join(name for name, holds in checks.items() if holds) or "ok",
    }


def losses_of(record: Numbers) -> list[float]:
    """Return the global loss of every batch: the mean over the shares of the batch, each counted once."""
    losses = []
    for batch in range(11):
        shares = {
            rank["data_rank"]: rank["losses"][batch] for rank in record["ranks"] if rank["losses"][batch] is not None
        }
        losses.append(statistics.fmean(shares.values()))
    return losses


def own_peak(record: Numbers) -> float:
    """Return a CPU process's rate of multiplying matrices: 2 n^3 FLOP in each rank's best time, their mean."""
    return statistics.fmean(2 * rank["matmul_size"] ** 3 / min(rank["matmul_seconds"]) for rank in record["ranks"])


def peaks_of(records: dict[Key, Numbers]) -> dict[Key, tuple[float, int | None]]:
    """Return each ok record's peak, and of how many like jobs it is the highest; None where it was not measured."""
    like: dict[Any, list[Key]] = defaultdict(list)
    peaks: dict[Key, tuple[float, int | None]] = {}
    for key, record in records.items():
        if record["status"] != "ok":
            continue
        identity, device = record["identity"], record["ranks"][0]["device_name"]
        if identity["device"] == "cpu":
            threads = record["launch"]["environment"]["OMP_NUM_THREADS"]
            like[identity["num_gpus"], identity["precision"], device, threads].append(key)
        else:
            peaks[key] = PEAK_FLOPS_PER_S[device], None
    for keys in like.values():
        highest = max(own_peak(records[key]) for key in keys)
        peaks |= {key: (highest, len(keys)) for key in keys}
    return peaks


def rates_of(record: Numbers, seconds: float, peak: float) -> Numbers:
    """Return what follows from a batch time, be it one repeat's or the mean of several."""
    identity = record["identity"]
    shape, b, n = identity["model"], identity["global_batch_size"], identity["num_gpus"]
    s, layers, h, vocab = shape["seq_length"], shape["num_layers"], shape["hidden_size"], shape["vocab_size"]
    # Forward 24 b s l h^2 (1 + s/6h) for the layers and 2 b s h V for the head; backward is twice as much, and
    # recomputing is the layers' forward once more. So 72 and 96 with V/12lh and V/16lh, as the papers write it.
    layer_forward = 24 * b * s * layers * h**2 * (1 + s / (6 * h))
    head = 3 * 2 * b * s * h * vocab
    useful, recomputing = 3 * layer_forward + head, 4 * layer_forward + head
    done = {"none": useful, "full": recomputing}.get(identity.get("activation_checkpointing", "none"))
    whole = peak * n
    return {
        "expected_training_time_s": 300e9 * seconds / (b * s),
        "percentage_of_peak_throughput": 100 * recomputing / seconds / whole,
        "model_flops_utilization_percent": 100 * useful / seconds / whole,
        "hardware_flops_utilization_percent": None if done is None else 100 * done / seconds / whole,
        "model_flops_per_step": useful,
        "model_flops_per_s_per_gpu": useful / seconds / n,
        "tokens_per_s": b * s / seconds,
        "samples_per_s": b / seconds,
    }


def num_parameters(shape: Numbers) -> int:
    """Return a GPT's parameters: embeddings of tokens and places, layers, the last LayerNorm, and a head of its own."""
    h = shape["hidden_size"]
    attention = (h * 3 * h + 3 * h) + (h * h + h)
    feed_forward = (h * 4 * h + 4 * h) + (4 * h * h + h)
    layer_norms = 2 * 2 * h
    per_layer = attention + feed_forward + layer_norms
    return (2 * shape["vocab_size"] + shape["seq_length"]) * h + shape["num_layers"] * per_layer + 2 * h


def row_numbers(record: Numbers, peak: float, num_cells: int | None) -> Numbers:
    """Return the numbers of one repeat's row of measurements.csv that are its own."""
    times, losses = times_of(record), losses_of(record)
    return {
        **times,
        **rates_of(record, times["batch_time_s"], peak),
        "peak_flops_per_gpu": peak,
        "peak_num_cells": num_cells,
        "own_peak_flops_per_gpu": own_peak(record) if record["identity"]["device"] == "cpu" else None,
        "final_loss": losses[-1],
        "peak_memory_gib": max(rank["peak_memory_bytes"] for rank in record["ranks"]) / 1024**3,
    }
