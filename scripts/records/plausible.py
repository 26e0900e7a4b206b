"""Say why no run can have left a record: such a record counts as missing, and its cell is measured again.

Every rule here follows from what the loop, the launcher and the clocks do (workloads/training/loop.py,
launcher/part.py), so a record that breaks one was damaged or edited. A rule that a real run could break, however
seldom, does not belong here: the record would be thrown away with the hours that it took.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from contracts.cell import Cell
from records.belonging import COMPLETE, misplacements
from workloads.training.loop import NUM_BATCHES

RANK_SERIES = ("batch_start_s", "batch_end_s", "input_time_s", "losses")
# Python's clocks count nanoseconds in a signed integer of 64 bits, and so do the systems below them.
LONGEST_S = 2**63 / 1e9
SHORTEST_S = 1e-9
# What a counter, and an integer column of measurements.csv, can hold.
LARGEST_COUNT = 2**63 - 1
# The largest address space of today's processors, in bytes.
LARGEST_MEMORY_BYTES = 2**57
LARGEST_MATMUL = 2**20
# A hundred times what the largest processors reach with units for matrices. One such rate would be every cell's peak.
FASTEST_PROCESS_FLOPS = 1e16
# Far beyond what float32 holds, in which losses are computed, and so small that a sum over shares stays finite.
LARGEST_LOSS = 1e100
LARGEST_SPEED = 1e30
# Stamps are rounded to the nearest float: each of the four that a wait is compared through may be off by half an ulp.
ROUNDING_ULPS = 4
# No text that a run writes as UTF-8 has a lone surrogate, and none that came from a system call has a NUL.
UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
SHA256 = re.compile("[0-9a-f]{64}")


def problem_of(record: Mapping[str, Any], cell: Cell) -> str | None:
    """Return the first reason why no run of `cell` can have left this record, or None.

    The record has to satisfy its schema.
    """
    return next(_problems(record, cell), None)


def writable(text: str) -> str:
    """Return a text that every file can hold, with escapes for characters that no file can."""
    return UNWRITABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def _problems(record: Mapping[str, Any], cell: Cell) -> Iterator[str]:
    """Yield the reasons; a later check may rely on the earlier ones."""
    yield from _values(record, "record")
    yield from _times_of_day(record)
    yield from _launch(record["launch"])
    yield from _tokens(record["tokens"])
    yield from _reported(record.get("reported_by_framework", {}))
    yield from misplacements(record, cell)
    for rank in record["ranks"]:
        for problem in _rank(rank, record["launch"]["wall_s"]):
            yield f"rank {rank['rank']}: {problem}"
    yield from _losses(record)


def _values(value: Any, where: str) -> Iterator[str]:
    """Look at every value, whatever it means: a single one that no file can hold takes the whole table with it."""
    if isinstance(value, str):
        if UNWRITABLE.search(value):
            yield f"{where} holds a character that no text has: {value[:40]!a}"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _values(key, f"a key of {where}")
            yield from _values(inner, f"{where}.{ascii(key)[1:-1]}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if not (type(inner) is float and math.isfinite(inner)):  # most values are, so they are passed over quickly
                yield from _values(inner, f"{where}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{where} is {value}"
    elif isinstance(value, int) and abs(value) > LARGEST_COUNT:
        yield f"{where} is larger than anything that is counted"


def _times_of_day(record: Mapping[str, Any]) -> Iterator[str]:
    # Nothing is said of their order: a wall clock may be set back while a cell runs.
    for key in ("started_at", "finished_at"):
        try:
            datetime.fromisoformat(record[key])
        except ValueError:
            yield f"{key} is {record[key]}, which no calendar has"


def _launch(launch: Mapping[str, Any]) -> Iterator[str]:
    for key in ("num_nodes", "cpu_cores", "threads_per_process"):
        if not _is_count(launch[key]):
            yield f"launch.{key} is {launch[key]}"
    if launch.get("others_cpu_cores") is not None and not _is_count(launch["others_cpu_cores"]):
        yield f"launch.others_cpu_cores is {launch['others_cpu_cores']}"
    for key in ("wall_s", "others_cpu_s"):
        if launch[key] is not None and not 0 <= launch[key] <= LONGEST_S:
            yield f"launch.{key} is {launch[key]:g}, which no clock shows"
    limit = launch["memory_limit_gib"]
    if limit is not None and not limit > 0:
        yield f"launch.memory_limit_gib is {limit:g}"


def _tokens(tokens: Mapping[str, Any]) -> Iterator[str]:
    if not SHA256.fullmatch(tokens["sha256"]):
        yield "tokens.sha256 is no SHA-256"
    if not _is_count(tokens["num_tokens"]):
        yield f"tokens.num_tokens is {tokens['num_tokens']}"


def _reported(reported: Mapping[str, float]) -> Iterator[str]:
    for name, value in reported.items():
        if abs(value) > LARGEST_SPEED:
            yield f"reported_by_framework.{name} is {value:g}"


def _rank(rank: Mapping[str, Any], wall_s: float) -> Iterator[str]:
    for series in RANK_SERIES:
        if len(rank[series]) != NUM_BATCHES:
            yield f"it holds {len(rank[series])} values in {series}, not {NUM_BATCHES}"
    yield from _stamps(rank["batch_start_s"], rank["batch_end_s"], rank["input_time_s"])
    first, last = rank["batch_start_s"][0] - rank["input_time_s"][0], rank["batch_end_s"][-1]
    if last - first > wall_s + _rounding_s(first, last):
        yield f"its batches took {last - first:.6g} s, and the launcher saw the whole cell end after {wall_s:.6g} s"
    clock = rank["clock"]
    if max(abs(clock["monotonic_s"]), abs(clock["unix_s"])) > LONGEST_S:
        yield "its clock shows a time that no clock shows"
    if clock["monotonic_s"] < last:
        yield "its last batch ended after its clock was read, which comes later"
    for key in ("threads", "affinity_cores", "host_cores"):
        number = rank.get("process", {}).get(key)
        if number is not None and not _is_count(number):
            yield f"process.{key} is {number}"
    memory = rank["peak_memory_bytes"]
    if memory is not None and not 0 <= memory <= LARGEST_MEMORY_BYTES:
        yield f"peak_memory_bytes is {memory}"
    size = rank["matmul_size"]
    if size is not None and not 1 <= size <= LARGEST_MATMUL:
        yield f"matmul_size is {size}"
    if any(not SHORTEST_S <= seconds <= LONGEST_S for seconds in rank["matmul_seconds"]):
        yield "a product of two matrices took a time that no clock shows"
    elif size and rank["matmul_seconds"] and 2 * size**3 / min(rank["matmul_seconds"]) > FASTEST_PROCESS_FLOPS:
        yield "its matrix products are faster than any processor"


def _stamps(starts: Sequence[float], ends: Sequence[float], waits: Sequence[float]) -> Iterator[str]:
    """Check what the loop guarantees on one clock that never goes back: it reads the clock when it asks for the input
    (after the end of the batch before), when the input is there (the batch starts; the wait is the time between), and
    when the batch has ended.
    """
    for index, (start, end, wait) in enumerate(zip(starts, ends, waits, strict=True), start=1):
        if max(abs(start), abs(end), abs(wait)) > LONGEST_S:
            yield f"batch {index} has a stamp that no clock shows"
        if end - start < SHORTEST_S:
            yield (
                f"batch {index} ends {start - end:.6g} s before it starts"
                if end < start
                else f"batch {index} took no time"
            )
        if wait < 0:
            yield f"batch {index} waited {wait:.6g} s for its input"
        if index == 1:
            continue
        before = ends[index - 2]
        if start < before:
            yield f"batch {index} starts {before - start:.6g} s before batch {index - 1} ended"
        if start - before < wait - _rounding_s(start, before):
            yield (
                f"batch {index} waited {wait:.6g} s for its input, and started {start - before:.6g} s after the batch "
                f"before it had ended"
            )


def _losses(record: Mapping[str, Any]) -> Iterator[str]:
    losses = [loss for rank in record["ranks"] for loss in rank["losses"] if loss is not None]
    finite = [loss for loss in losses if not isinstance(loss, str)]
    if any(abs(loss) > LARGEST_LOSS for loss in finite):
        yield "a loss is larger than the numbers in which losses are computed"
    if record["status"] not in COMPLETE:
        return
    if not losses:
        yield "no rank holds a loss"
    all_finite = len(finite) == len(losses)
    if record["status"] == "ok" and not all_finite:
        yield "its status is ok, and a loss is not finite"
    if record["status"] == "nan" and all_finite:
        yield "its status is nan, and every loss is finite"


def _is_count(value: Any) -> bool:
    return 1 <= value <= LARGEST_COUNT


def _rounding_s(*stamps_s: float) -> float:
    """Return by how much a difference of stamps of this size can be off for being rounded to floats."""
    return ROUNDING_ULPS * math.ulp(max(map(abs, stamps_s)))
