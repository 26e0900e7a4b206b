"""A thread that cannot be made: for want of memory for its stack, or because there may be no more of them.

The kernel says EAGAIN ("Resource temporarily unavailable") in both cases, so the limits are asked.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable
from pathlib import Path

from contracts.cgroups import MEMBERSHIP, MOUNTS, group_folders

# C++ and Python say so and go on to raise; the libraries of OpenMP print it and end the process.
THREAD_TEXTS = ("Resource temporarily unavailable", "can't start new thread")
OPENMP_TEXTS = (
    "libgomp: Thread creation failed: Resource temporarily unavailable",
    "OMP: System error #11: Resource temporarily unavailable",
)
PROC = Path("/proc")
# Others' threads may have ended since.
SLACK = 2


def memory_was_lacking_for_a_thread() -> bool:
    """Return whether a thread that could not be made a moment ago lacked memory, as far as limits tell."""
    return memory_is_limited() and not tasks_ran_out()


def openmp_lacked_a_thread(lines: Iterable[str]) -> bool:
    """Return whether OpenMP ended a process, whose last lines these are, because it could not make a thread."""
    return any(text in line for line in lines for text in OPENMP_TEXTS)


def memory_is_limited(proc: Path = PROC) -> bool:
    """Return whether allocations of this process can fail: its own limits, or a kernel that promises no more memory
    than it has.
    """
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS))
    if any(limit != resource.RLIM_INFINITY for limit in limits):
        return True
    return _number(proc / "sys/vm/overcommit_memory") == 2


def tasks_ran_out(
    proc: Path = PROC, membership: Path = MEMBERSHIP, mounts: Path = MOUNTS, user_limit: int | None = None
) -> bool:
    """Return whether there are as many processes and threads as there may be: of this user, of a control group of this
    process, or on the host. user_limit: RLIMIT_NPROC where None.
    """
    if user_limit is None:
        user_limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    # The limit of a user's threads does not hold for root.
    if (
        os.geteuid() != 0
        and user_limit != resource.RLIM_INFINITY
        and _threads_of(os.getuid(), proc) >= user_limit - SLACK
    ):
        return True
    for folder in group_folders("pids", membership, mounts):
        current, most = _number(folder / "pids.current"), _number(folder / "pids.max")
        if current is not None and most is not None and current >= most - SLACK:
            return True
    most = _number(proc / "sys/kernel/threads-max")
    with contextlib.suppress(OSError, IndexError, ValueError):
        current = int((proc / "loadavg").read_text(encoding="utf-8").split()[3].partition("/")[2])
        return most is not None and current >= most - SLACK
    return False


def _threads_of(user: int, proc: Path) -> int:
    total = 0
    for status in proc.glob("[0-9]*/status"):
        with contextlib.suppress(OSError, KeyError, ValueError, IndexError):
            fields = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":" in line)
            if int(fields["Uid"].split()[0]) == user:
                total += int(fields["Threads"])
    return total


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
