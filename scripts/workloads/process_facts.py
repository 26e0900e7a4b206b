"""What a training process really has: threads, cores, variables that change speed, host. Needs no framework.

What the launcher gave need not be what the process has: a system file's variables, `setup` and the framework itself
come after it.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.inherited import MPIEXEC, tells_a_place

# Of libraries of MPI. Their own starters set some of these for the processes that they start, and for no others.
MPI_PREFIXES = ("MPICH_", "MPIR_CVAR_", "OMPI_MCA_", "I_MPI_", "MV2_")
# Variables that change how fast the same program runs, by what reads them.
PREFIXES = (
    *("OMP_", "GOMP_", "KMP_"),  # OpenMP of GNU and of Intel: threads, where they run, how they wait
    *("MKL_", "OPENBLAS_", "BLIS_", "ONEDNN_", "DNNL_", "ATEN_"),  # libraries of matrix products
    *("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "TCMALLOC_", "MIMALLOC_"),  # memory allocators
    *("NCCL_", "RCCL_", "GLOO_", "UCX_", "FI_"),  # communication
    *MPI_PREFIXES,
    *("TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "XLA_", "JAX_", "TF_"),  # frameworks
    *("CUBLAS_", "CUDNN_", "NVTE_", "HOROVOD_", "MIOPEN_", "HSA_"),
    *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_AUTO_BOOST"),
    *("CUDA_FORCE_PTX_JIT", "CUDA_CACHE_DISABLE", "CUDA_DISABLE_PTX_JIT", "NVIDIA_TF32_OVERRIDE"),
)
# Parts of names of what belongs to one job or one person: addresses, keys, places of files.
NOT_KEPT = frozenset(
    {"ADDR", "ADDRESS", "PORT", "HOST", "HOSTS", "HOSTID", "HOSTNAME", "URL", "URI", "ID", "USER", "TOKEN", "SECRET"}
    | {"KEY", "PASSWORD", "CREDENTIALS", "DIR", "HOME", "PATH", "FILE", "LOG", "LOGS", "DUMP"}
)
# Files that do change speed.
KEPT = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_TUNER_CONFIG_FILE")
DRIVER_VERSION = re.compile(r"\s(\d{2,}\.\d+(?:\.\d+)?)\s")


def speed_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that change speed, by name; bytes that are no UTF-8 (a path in LD_PRELOAD) as escapes."""
    return {
        name: os.fsencode(environment[name]).decode("utf-8", "backslashreplace")
        for name in sorted(environment)
        if _changes_speed(name)
    }


def process_facts(given: Mapping[str, str], threads: int | None) -> dict[str, Any]:
    """Return what this process has, for the record, when its engine is built.

    given: `speed_variables` when the process started. threads: of one operator, as the framework says; None where it
    does not. What the framework sets for itself stands apart: it is what the framework does, and no other measurement.
    """
    now = speed_variables()
    return {
        "threads": threads or _number_of_threads(os.environ.get("OMP_NUM_THREADS", "")),
        "affinity_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "variables": {name: value for name, value in given.items() if now.get(name) == value},
        "variables_of_framework": {name: value for name, value in now.items() if given.get(name) != value},
        "processor": processor_name(),
        "host_cores": os.cpu_count(),
        "kernel": platform.release() or None,
        "driver": driver_version(),
        "python": platform.python_version(),
    }


def processor_name(information: Path = Path("/proc/cpuinfo")) -> str | None:
    """Return the processor's model as the kernel names it; None where it does not."""
    try:
        lines = information.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    if fields.get("model name"):
        return fields["model name"]
    # Arm's have numbers only.
    named = [fields[key] for key in ("CPU implementer", "CPU part") if fields.get(key)]
    return f"{platform.machine()} {' '.join(named)}" if named else None


def driver_version(information: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Return the version of NVIDIA's driver; None where there is none."""
    try:
        found = DRIVER_VERSION.search(information.read_text(encoding="utf-8").partition("\n")[0])
    except OSError:
        return None
    return found.group(1) if found else None


def _changes_speed(name: str) -> bool:
    if not name.startswith(PREFIXES) or name in MPIEXEC or tells_a_place(name):
        return False
    return name in KEPT or not NOT_KEPT.intersection(name.upper().split("_"))


def _number_of_threads(text: str) -> int | None:
    """Return the first number of OMP_NUM_THREADS, which may hold one for each level of nesting."""
    first = text.partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None
