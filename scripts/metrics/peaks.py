"""Peak FLOP/s of one GPU: from config/hardware.yaml by the device's name; on a CPU the most that like jobs measured."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.devices import Device
from contracts.errors import LONGEST_VALUE
from settings.hardware import device_table, peak_for_device

MEASURED = "measured"
# A note names so many device kinds.
DEVICES_SHOWN = 4
# A process's own rate this far below the machine's peak is worth a word: on an idle machine the rates of like jobs lie
# within 7 % of each other, so that twice as much is somebody else's doing.
SHARED_HOST_SHARE = 0.15
# On a CPU the device is the processor.
_SAME_PEAK = ("num_gpus", "precision", "device_name", "threads_per_process")


@dataclass(frozen=True)
class Peak:
    """FLOP/s of one GPU (None where unknown), where it is from, and why it is unknown."""

    flops_per_s: float | None
    source: str = ""
    note: str = ""


@dataclass(frozen=True)
class MachinePeak:
    """The highest rate that like jobs of a study measured, in FLOP/s of one process, how many they are, and a note."""

    flops_per_s: float
    num_cells: int
    note: str = ""


def measured_peak(ranks: Sequence[Mapping[str, Any]]) -> float | None:
    """Return FLOP/s of one process, all at once: 2 size^3 / seconds of each rank's best product, mean over ranks.

    None where a rank measured none; ValueError for a rate that cannot be.
    """
    rates = []
    for rank in ranks:
        if not rank["matmul_size"] or not rank["matmul_seconds"]:
            return None
        rates.append(2.0 * rank["matmul_size"] ** 3 / min(rank["matmul_seconds"]))
        if not (math.isfinite(rates[-1]) and rates[-1] > 0):
            raise ValueError(f"rank {rank['rank']} multiplied at {rates[-1]:g} FLOP/s, which no processor does")
    return sum(rates) / len(rates) if rates else None


def peak_of_record(hardware: Mapping[str, Any], device: Device, ranks: Sequence[Mapping[str, Any]]) -> Peak:
    """Return the peak that percentages are taken of; empty with a note where it is unknown, never a default.

    `device` is the cell's. One whose peak is measured has this job's own rate (see `machine_peaks`); of the others the
    peak is found by the ranks' `device_name`.
    """
    if device.peak_is_measured:
        peak = measured_peak(ranks)
        if peak is None:
            return Peak(None, note="peak unknown: the job measured no matrix product on every rank")
        return Peak(peak, MEASURED)
    names = sorted({rank["device_name"] for rank in ranks})
    if len(names) != 1:
        shown = ", ".join(name[:LONGEST_VALUE] for name in names[:DEVICES_SHOWN])
        return Peak(None, note=f"peak unknown: ranks ran on {len(names)} device kinds ({shown})")
    try:
        peak = peak_for_device(hardware, names[0])
    except ValueError as error:
        return Peak(None, note=f"peak unknown: {error}")
    return Peak(peak, f"config/hardware.yaml: {device_table(hardware)[names[0]]}")


def machine_peaks(rows: Sequence[Mapping[str, Any]]) -> dict[int, MachinePeak]:
    """Return index in `rows` -> the peak of the machine, for the rows whose own job measured its rate.

    A job on a shared machine measures what was left of it at that moment, and a percentage of that says the less the
    busier the machine was: a slower job can have the higher percentage. What a machine can do is the most that a job of
    the study has seen, among jobs with the same number of processes, precision, processor and threads.
    """
    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.get("own_peak_flops_per_gpu") is not None:
            alike[tuple(row.get(key) for key in _SAME_PEAK)].append(index)
    peaks = {}
    for indices in alike.values():
        highest = max(rows[index]["own_peak_flops_per_gpu"] for index in indices)
        for index in indices:
            peaks[index] = MachinePeak(
                highest, len(indices), _shared_note(rows[index]["own_peak_flops_per_gpu"], highest, len(indices))
            )
    return peaks


def _shared_note(own: float, highest: float, num_cells: int) -> str:
    if own >= (1 - SHARED_HOST_SHARE) * highest:
        return ""
    return (
        f"the host was shared or slowed down: this job's own matrix products ran at {own / 1e9:.3g} GFLOP/s a process, "
        f"{100 * (1 - own / highest):.0f} % below the best of {num_cells} like jobs, so its times may be too long"
    )
