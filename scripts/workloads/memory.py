"""Peak memory of this process, and telling an exhausted memory from other failures. Needs no framework."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

from workloads.thread_limits import THREAD_TEXTS, memory_was_lacking_for_a_thread

STATUS_FILE = Path("/proc/self/status")
RESET_FILE = Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # proc(5): writing 5 resets the peak resident size ("high water mark")

# Where only a message tells: PyTorch's CPU allocator, CUDA and cuBLAS, C++.
OUT_OF_MEMORY_TEXTS = (
    "can't allocate memory",
    "Cannot allocate memory",
    "not enough memory: you tried to allocate",
    "std::bad_alloc",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
OUT_OF_MEMORY_TYPES = ("OutOfMemoryError",)
# A communication library's message may hold the same words for quite different reasons (sockets, pinned buffers, a
# peer that died), so its errors never count.
COMMUNICATION_ERROR_TYPES = ("DistError", "DistBackendError", "DistNetworkError", "DistStoreError")
COMMUNICATION_WORDS = ("nccl", "gloo")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error`, or the error it was raised from, says that the device or the host ran out of memory.

    Errors of the communication libraries do not count. Types are told by name, so that no framework is imported.
    """
    return any(_says_out_of_memory(cause) for cause in _causes(error))


def reset_peak_resident() -> bool:
    """Start the peak of `peak_resident_bytes` anew; False where the system does not permit it."""
    try:
        RESET_FILE.write_text(RESET_PEAK)
    except OSError:
        return False
    return True


def peak_resident_bytes() -> int | None:
    """The most memory this process held resident since the reset (VmHWM); None where the system does not tell."""
    try:
        lines = STATUS_FILE.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024  # always in kB
    return None


def _says_out_of_memory(error: BaseException) -> bool:
    names = {base.__name__ for base in type(error).__mro__}
    if isinstance(error, MemoryError) or names.intersection(OUT_OF_MEMORY_TYPES):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:  # Python's own calls: a map, a process
        return True
    text = str(error)
    if names.intersection(COMMUNICATION_ERROR_TYPES) or any(word in text.lower() for word in COMMUNICATION_WORDS):
        return False
    if not isinstance(error, RuntimeError):
        return False
    if any(sign in text for sign in OUT_OF_MEMORY_TEXTS):
        return True
    return any(sign in text for sign in THREAD_TEXTS) and memory_was_lacking_for_a_thread()


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__
