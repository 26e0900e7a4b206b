"""What else happened on the host while a cell ran: a busy host gives numbers that look like any other."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HostClock:
    """Seconds at one moment; `busy_s` is the processor time spent on the whole host (None where it is not known),
    time the hypervisor took away included; `own_s` that of this process and its ended children."""

    wall_s: float
    busy_s: float | None
    own_s: float


def read_host_clock(stat: Path = Path("/proc/stat")) -> HostClock:
    own = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return HostClock(time.monotonic(), _busy_s(stat), own)


def spent_s(before_s: float | None, after_s: float | None) -> float | None:
    """Processor seconds between two moments; None where the host does not tell."""
    return None if before_s is None or after_s is None else after_s - before_s


def others_cpu_s(host_s: Sequence[float | None], own_s: Sequence[float]) -> float | None:
    """Processor seconds on one host that went to others than the parts of a cell that ran there at the same time.

    host_s: of the whole host, as each of these parts saw it; own_s: of each of them.
    """
    if not host_s or None in host_s:
        return None
    return max(0.0, max(seconds for seconds in host_s if seconds is not None) - sum(own_s))


def _busy_s(stat: Path) -> float | None:
    try:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def host_memory_kills() -> int | None:
    """How many processes the kernel has killed for memory, in this control group or on the host; None if unknown."""
    for path, key in (("/sys/fs/cgroup/memory.events", "oom_kill"), ("/proc/vmstat", "oom_kill")):
        try:
            lines = dict(line.split()[:2] for line in Path(path).read_text().splitlines())
            return int(lines[key])
        except (OSError, KeyError, ValueError):
            continue
    return None
