"""Keep processes together: a training process dies with its launcher, and a launcher leaves none behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


# The process id of whoever starts the ranks of a node, told to each of them.
LAUNCHER_VARIABLE = "SCALING_EVAL_LAUNCHER"


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent` is gone, however it ended (Linux only)."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above took hold
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that none can get away (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_descendants() -> None:
    """End every process that this one started, directly or not, in whatever session it is."""
    import psutil  # of the workflow's environment; a framework's own need not have it

    descendants = psutil.Process().children(recursive=True)
    for process in descendants:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(descendants, timeout=5)


def limit_memory(limit_gib: float) -> None:
    """Make allocations beyond `limit_gib` of private memory fail, as a full device's would."""
    limit = int(limit_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
