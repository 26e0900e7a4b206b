"""Which device of config/hardware.yaml the GPUs of some nodes are, by the words that Slurm has for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any


def matching_devices(words: Iterable[str], hardware: Mapping[str, Any]) -> list[str]:
    """Return the devices that the first telling word may mean: `a100`, `nvidia_h100_pcie`, `tesla_v100`, a feature.

    A device is meant by a word that is its name or one of the driver's names for it, or a part of these.
    """
    for word in words:
        parts = _parts(word)
        found = [
            name for name, device in hardware.items() if any(parts <= _parts(text) for text in _names(name, device))
        ]
        if parts and found:
            return found
        # A word that says more than the name does: nvidia_a100_80gb_pcie is an A100.
        models = [name for name in hardware if _parts(name) <= parts]
        if models:
            return models
    return []


def _names(name: str, device: Mapping[str, Any]) -> list[str]:
    return [name, *device.get("driver_names", ())]


def _parts(text: str) -> frozenset[str]:
    """The words of a name without what every GPU of the vendor is called."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return frozenset(word for word in words if word not in ("nvidia", "tesla", "amd", "instinct", "gpu"))
