"""How many processor cores this process may use: the settings of a system ask, and so does the launcher."""

from __future__ import annotations

import math
import os
from pathlib import Path

from contracts.cgroups import MEMBERSHIP, MOUNTS, group_folders


def available_cores(membership: Path = MEMBERSHIP, mounts: Path = MOUNTS) -> int:
    """Return the number of cores this process may use: those it may run on, or fewer where its time on them is limited.

    A quota of one and a half cores counts as two: one and a half of the time of two.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(membership, mounts)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(membership: Path = MEMBERSHIP, mounts: Path = MOUNTS) -> float | None:
    """Return the processor time that the control groups allow, in cores; None where they do not limit it."""
    quotas = [_quota(folder) for folder in group_folders("cpu", membership, mounts)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(folder: Path) -> float | None:
    """Return one group's quota: `cpu.max` holds both numbers in version 2, two files hold one each in version 1."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text(encoding="utf-8") for name in ("quota", "period")
            )
        return float(quota) / float(period) if quota != "max" and float(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
