"""Peak FLOP/s of one GPU: from config/hardware.yaml by the device's name; on a CPU the most that like jobs measured.

Matching is exact and case-sensitive: the name is a key of the file, or one of an entry's `driver_names`. Nothing is
matched by a part of a name, because "A100" is also in the name of a MIG slice of one, and "H100" in that of the PCIe
card, whose peaks are others.
"""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matrix.errors import LONGEST_VALUE, shown_value
from matrix.gpus import is_slice

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


def device_table(hardware: Mapping[str, Any]) -> dict[str, str]:
    """Return every name a device of config/hardware.yaml goes by -> its key there.

    Raises ValueError where two entries claim one name.
    """
    names: dict[str, str] = {}
    for key, entry in hardware.items():
        for name in dict.fromkeys([key, *entry.get("driver_names", ())]):
            if name in names:
                raise ValueError(
                    f"config/hardware.yaml: both {names[name]} and {key} go by the name {name!r}; leave it in one"
                )
            names[name] = key
    return names


def peak_for_device(hardware: Mapping[str, Any], name: str) -> float:
    """Return the dense half-precision FLOP/s of the device that the driver calls `name`.

    Raises ValueError for an unknown device, saying what to add to config/hardware.yaml.
    """
    names = device_table(hardware)
    if name not in names:
        raise ValueError(_unknown_device(name, names))
    return float(hardware[names[name]]["peak_half_precision_flops_per_s"])


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


def peak_of_record(hardware: Mapping[str, Any], device: str, ranks: Sequence[Mapping[str, Any]]) -> Peak:
    """Return the peak that percentages are taken of; empty with a note where it is unknown, never a default.

    `device` is the cell's: "cpu" (this job's own rate, see `machine_peaks`) or "cuda" (by the ranks' `device_name`).
    """
    if device == "cpu":
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


def _unknown_device(name: str, names: Mapping[str, str]) -> str:
    # A slice of a GPU bears the name of the whole, and has a fraction of its peak.
    near = [] if is_slice(name) else difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f" (if it is a {names[near[0]]}, add the name to that entry's driver_names)" if near else ""
    return (
        f"config/hardware.yaml knows no device {shown_value(name)}{hint}: add an entry with "
        "peak_half_precision_flops_per_s (dense, not sparse, of what one process drives), driver_names and source"
    )
