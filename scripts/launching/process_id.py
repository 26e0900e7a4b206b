"""Name a process so that another one can tell later whether it still lives: a number alone is given out again."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PID_NAMESPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True)
class ProcessId:
    """place: one start of one machine, and the container in it; a number means nothing elsewhere."""

    place: str
    pid: int
    started_unix_s: float
    user: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def this_process() -> ProcessId:
    return ProcessId(_place(), os.getpid(), psutil.Process().create_time(), os.getuid())


def is_alive(data: object) -> bool | None:
    """Of a process that was named by `ProcessId.as_dict`; None where that cannot be told from here."""
    try:
        process = ProcessId(**data)  # type: ignore[arg-type]
    except TypeError:
        return None
    # Another user's process may be hidden from us.
    if process.place != _place() or process.user != os.getuid():
        return None
    try:
        # Within a second: the start is worked out from the machine's clock, which may have been set since.
        return abs(psutil.Process(process.pid).create_time() - process.started_unix_s) < 1
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return None


def _place() -> str:
    """Where the system does not tell, one that no other process has."""
    try:
        return f"{BOOT_ID.read_text().strip()} {PID_NAMESPACE.readlink()}"
    except OSError:
        return f"unknown {os.getpid()}"
