"""Peak FLOP/s of one GPU: from config/hardware.yaml by the device's name, or measured in the job on a CPU.

Matching is exact and case-sensitive: the name is a key of the file, or one of an entry's `driver_names`. Nothing is
matched by a part of a name, because "A100" is also in the name of a MIG slice of one, and "H100" in that of the PCIe
card, whose peaks are others.
"""

from __future__ import annotations

import difflib
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MEASURED = "measured"
# A measured peak this far from the median of at least so many cells alike is worth a word.
ODD_PEAK_SHARE = 0.15
ODD_PEAK_CELLS = 3
_SAME_PEAK = ("num_gpus", "precision", "device_name", "threads_per_process")


@dataclass(frozen=True)
class Peak:
    """FLOP/s of one GPU (None where unknown), where it is from, and why it is unknown."""

    flops_per_s: float | None
    source: str = ""
    note: str = ""


def device_table(hardware: Mapping[str, Any]) -> dict[str, str]:
    """Every name a device of config/hardware.yaml goes by -> its key there.

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
    """Dense half-precision FLOP/s of the device that the driver calls `name`.

    Raises ValueError for an unknown device, saying what to add to config/hardware.yaml.
    """
    names = device_table(hardware)
    if name not in names:
        raise ValueError(_unknown_device(name, names))
    return float(hardware[names[name]]["peak_half_precision_flops_per_s"])


def measured_peak(ranks: Sequence[Mapping[str, Any]]) -> float | None:
    """FLOP/s of one process, all multiplying at once: 2 size^3 / seconds of each rank's best product, mean over ranks.

    None where a rank measured none.
    """
    rates = []
    for rank in ranks:
        if not rank["matmul_size"] or not rank["matmul_seconds"]:
            return None
        rates.append(2.0 * rank["matmul_size"] ** 3 / min(rank["matmul_seconds"]))
    return sum(rates) / len(rates) if rates else None


def peak_of_record(hardware: Mapping[str, Any], device: str, ranks: Sequence[Mapping[str, Any]]) -> Peak:
    """The peak a record's percentages are taken of; empty with a note where it is unknown, never a default.

    `device` is the cell's: "cpu" (measured in the job) or "cuda" (looked up by the ranks' `device_name`).
    """
    if device == "cpu":
        peak = measured_peak(ranks)
        if peak is None:
            return Peak(None, note="peak unknown: the job measured no matrix product on every rank")
        return Peak(peak, MEASURED)
    names = sorted({rank["device_name"] for rank in ranks})
    if len(names) != 1:
        return Peak(None, note=f"peak unknown: ranks ran on {len(names)} device kinds ({', '.join(names)})")
    try:
        peak = peak_for_device(hardware, names[0])
    except ValueError as error:
        return Peak(None, note=f"peak unknown: {error}")
    return Peak(peak, f"config/hardware.yaml: {device_table(hardware)[names[0]]}")


def odd_peak_notes(rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Index in `rows` -> a note, where a measured peak is far from the median of the cells that should have the same.

    The rate of a shared machine changes between jobs, and with it what a percentage is taken of. Nothing is corrected:
    the peak stays what its own job measured.
    """
    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.get("peak_source") == MEASURED and row.get("peak_flops_per_gpu"):
            alike[tuple(row.get(key) for key in _SAME_PEAK)].append(index)
    notes = {}
    for indices in alike.values():
        middle = statistics.median(rows[index]["peak_flops_per_gpu"] for index in indices)
        for index in indices:
            peak = rows[index]["peak_flops_per_gpu"]
            if len(indices) >= ODD_PEAK_CELLS and abs(peak / middle - 1) > ODD_PEAK_SHARE:
                side = "below" if peak < middle else "above"
                notes[index] = (
                    f"percent of peak is uncertain: the measured peak, {peak / 1e9:.3g} GFLOP/s, is "
                    f"{100 * abs(peak / middle - 1):.0f} % {side} the median of the {len(indices)} cells like it"
                )
    return notes


def _unknown_device(name: str, names: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f" (if it is a {names[near[0]]}, add the name to that entry's driver_names)" if near else ""
    return (
        f"config/hardware.yaml knows no device {name!r}{hint}: add an entry with "
        "peak_half_precision_flops_per_s (dense, not sparse, of what one process drives), driver_names and source"
    )
