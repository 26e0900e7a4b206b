"""Name a process so that another one can tell later whether it still lives: a number alone is given out again."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PID_NAMESPACE = Path("/proc/self/ns/pid")
ENDED = ("Z", "X")  # states of a process that nobody has asked for its exit status


@dataclass(frozen=True)
class ProcessId:
    """place: one start of one machine, and the container in it; a number means nothing elsewhere. started_ticks: since
    that start, as the kernel counts, so that a clock that is set changes nothing.
    """

    place: str
    pid: int
    started_ticks: int | None
    user: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def this_process() -> ProcessId:
    return ProcessId(_place(), os.getpid(), _started_ticks(os.getpid()), os.getuid())


def is_alive(data: object) -> bool | None:
    """Of a process that was named by `ProcessId.as_dict`; None where that cannot be told from here."""
    try:
        process = ProcessId(**data)  # type: ignore[arg-type]
    except TypeError:
        return None
    # Another user's process may be hidden from us.
    if process.started_ticks is None or process.place != _place() or process.user != os.getuid():
        return None
    return _started_ticks(process.pid) == process.started_ticks


def was_before_boot(data: object) -> bool:
    """Return whether a process of this very host ran before the host was started last; it is gone in any case."""
    try:
        process = ProcessId(**data)  # type: ignore[arg-type]
    except TypeError:
        return False
    return process.place.partition(" ")[0] != _place().partition(" ")[0]


def _place() -> str:
    """Where the system does not tell, one that no other process has."""
    try:
        return f"{BOOT_ID.read_text().strip()} {PID_NAMESPACE.readlink()}"
    except OSError:
        return f"unknown {os.getpid()}"


def _started_ticks(pid: int) -> int | None:
    """proc_pid_stat(5), field 22; None for a process that has ended."""
    try:
        # The second field, the program's name in parentheses, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ENDED else int(fields[19])
