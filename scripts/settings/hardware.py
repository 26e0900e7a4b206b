"""Devices and their peak FLOP/s, as config/hardware.yaml knows them by the names that drivers give them.

Matching is exact and case-sensitive: the name is a key of the file, or one of an entry's `driver_names`. Nothing is
matched by a part of a name, because "A100" is also in the name of a MIG slice of one, and "H100" in that of the PCIe
card, whose peaks are others.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from contracts.errors import shown_value
from settings.gpus import is_slice


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


def _unknown_device(name: str, names: Mapping[str, str]) -> str:
    # A slice of a GPU bears the name of the whole, and has a fraction of its peak.
    near = [] if is_slice(name) else difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f" (if it is a {names[near[0]]}, add the name to that entry's driver_names)" if near else ""
    return (
        f"config/hardware.yaml knows no device {shown_value(name)}{hint}: add an entry with "
        "peak_half_precision_flops_per_s (dense, not sparse, of what one process drives), driver_names and source"
    )
