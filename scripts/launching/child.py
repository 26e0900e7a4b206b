"""What a training process does first: die with its launcher, and keep to its memory limit."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent` is gone, however it ended (Linux only)."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above took hold
        os.kill(os.getpid(), signal.SIGKILL)


def limit_memory(limit_gib: float) -> None:
    """Make allocations beyond `limit_gib` of private memory fail, as a full device's would."""
    limit = int(limit_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
