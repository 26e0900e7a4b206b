"""What else happened on the host while a cell ran: a busy host gives numbers that look like any other."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HostClock:
    """Seconds at one moment; `busy_s` is the processor time spent on the cores that this process may run on (None where
    it is not known), time the hypervisor took away included; `own_s` that of this process and its ended children.
    `cores`: how many cores those are."""

    wall_s: float
    busy_s: float | None
    own_s: float
    cores: int | None = None


def read_host_clock(stat: Path = Path("/proc/stat"), allowed: Collection[int] | None = None) -> HostClock:
    """Return the host's clock now. allowed: numbers of the cores that count, by default those of this process.

    What others do on cores that are not ours (taskset, a job's share of a node) does not hold our processes up.
    """
    if allowed is None and hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
    own = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    busy_s, cores = _busy(stat, allowed)
    return HostClock(time.monotonic(), busy_s, own, cores)


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


def _busy(stat: Path, allowed: Collection[int] | None) -> tuple[float | None, int | None]:
    """Return the seconds spent on the cores that are allowed, and how many these are."""
    try:
        lines = [line.split() for line in stat.read_text().splitlines() if line.startswith("cpu")]
        ticks = {fields[0]: _busy_ticks(fields[1:9]) for fields in lines}
        whole = ticks.pop("cpu")
        numbers = {int(name.removeprefix("cpu")): name for name in ticks}
    except (OSError, ValueError, KeyError):
        return None, None
    counted = [name for number, name in numbers.items() if allowed is None or number in allowed]
    if len(counted) == len(numbers):  # the line of the whole host, whose rounding is its own
        return whole / os.sysconf("SC_CLK_TCK"), len(numbers) or None
    return (sum(ticks[name] for name in counted) / os.sysconf("SC_CLK_TCK"), len(counted)) if counted else (None, None)


def _busy_ticks(fields: Sequence[str]) -> int:
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
    return user + nice + system + irq + softirq + steal


def host_memory_kills() -> int | None:
    """How many processes the kernel has killed for memory, in this control group or on the host; None if unknown."""
    for path, key in (("/sys/fs/cgroup/memory.events", "oom_kill"), ("/proc/vmstat", "oom_kill")):
        try:
            lines = dict(line.split()[:2] for line in Path(path).read_text().splitlines())
            return int(lines[key])
        except (OSError, KeyError, ValueError):
            continue
    return None
