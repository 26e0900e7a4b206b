"""The settings every framework's processes get alike, so that a comparison compares frameworks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

# Keep freed memory in the process instead of giving every large tensor back to the kernel and faulting it in again:
# worth 1.4 to 1.6 times on a CPU (benchmarks/README.md), and the same for all frameworks.
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "34359738368",
    "MALLOC_TOP_PAD_": "268435456",
}

# How long GNU OpenMP's threads burn their core before they sleep when there is nothing to do. By default so long that
# one other process on the host makes a batch 5 to 50 times slower; with this it costs its share and no more.
OPENMP = {"GOMP_SPINCOUNT": "1000"}


def threads_per_process(cores: int, processes: int) -> int:
    """Every process gets an equal share of its node's cores, at least one."""
    return max(1, cores // processes)


def shared_settings(threads: int, system: Mapping[str, str]) -> dict[str, str]:
    """Return thread and allocator settings, the system file's variables last; all of it goes into the record.

    MKL has as many threads as OpenMP, also where the system file says how many: torch takes MKL's number, and would do
    as if nothing had been said.
    """
    openmp = system.get("OMP_NUM_THREADS", str(threads))  # "4,2": of nested teams
    counts = {"OMP_NUM_THREADS": openmp, "MKL_NUM_THREADS": openmp.partition(",")[0]}
    return {**counts, **OPENMP, **ALLOCATOR, **system}


def rank_variables(rank: int, local_rank: int, world_size: int, local_size: int) -> dict[str, str]:
    """Return a process's place, of the environment contract of every adaptor; the other part is where the ranks meet.

    (workloads/rendezvous.py)
    """
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(local_size),
        "PYTHONUNBUFFERED": "1",
    }


def put_python_on_path() -> None:
    """Have `python` in a command that this process starts be the interpreter of this process, activated or not."""
    folder = str(Path(sys.executable).parent)
    if os.environ.get("PATH", "").split(os.pathsep)[0] != folder:
        os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
