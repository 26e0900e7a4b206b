"""How many processor cores this process may use. Beside the packages, since planning and launching both ask."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Return the number of cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
