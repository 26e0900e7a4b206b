"""Run a set of rank processes to their common end: all succeed, or one fails and the rest are ended with it."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from contracts.outcomes import EndKind
from workloads.child import die_with_parent, kill_descendants

POLL_S = 0.05
# A rank that fails takes others down through broken connections; its own account must have time to arrive.
ACCOUNT_GRACE_S = 2.0
TERMINATE_GRACE_S = 3.0
# After SIGKILL: a process that waits for a file system or a driver that hangs ends when that answers, or never.
UNKILLABLE_GRACE_S = 30.0
# How long ranks may take to close when all of them have left their results: some libraries never come back from it.
CLOSING_GRACE_S = 30.0
RESULTS_POLL_S = 1.0
LAST_LINES = 20
# Characters: of one piece of a line, of a line that is shown again, and of a whole log.
LINE_LIMIT = 65_536
LAST_LINE_LIMIT = 500
LOG_LIMIT = 64 * 2**20


@dataclass(frozen=True)
class RankCommand:
    rank: int
    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Limits:
    """Seconds; `stop_reason` returns (kind, reason) when the launcher itself must stop, else None.

    has_result: whether a rank has left what it measured; has_all_results: whether every rank of the cell has, those of
    other nodes among them.
    """

    startup_timeout_s: float
    time_limit_s: float
    stop_reason: Callable[[], tuple[str, str] | None]
    has_arrived: Callable[[int], bool]
    has_started: Callable[[int], bool]
    has_result: Callable[[int], bool]
    has_all_results: Callable[[], bool]
    closing_grace_s: float = CLOSING_GRACE_S


@dataclass(frozen=True)
class Ending:
    """How the ranks ended: `kind` is "" when all exited with 0 or when their results were there, else crash, killed,
    startup_timeout, time_limit, ...

    signal: which one killed; None where it was none, or where it is not known.
    """

    kind: str = ""
    reason: str = ""
    rank: int | None = None
    last_lines: tuple[str, ...] = ()
    signal: int | None = None


class LogWriter:
    """Copies every rank's output into one log, each line with its rank, and keeps the last lines of each."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._last: dict[int, deque[str]] = {}
        self._written = 0
        self._full = False

    def note(self, line: str) -> None:
        self._write(f"[launcher] {line}\n")

    def copy(self, rank: int, stream: TextIO) -> None:
        """Until the stream ends; a full disk must not leave a rank blocked on a pipe that nobody empties."""
        last = self._last.setdefault(rank, deque(maxlen=LAST_LINES))
        while line := stream.readline(LINE_LIMIT):
            last.append(line.rstrip("\n")[:LAST_LINE_LIMIT])
            self._write(f"[rank {rank}] {line}" if line.endswith("\n") else f"[rank {rank}] {line}\n")

    def pass_on(self, stream: TextIO) -> Iterator[str]:
        """Copy lines that carry their rank already (another node's log), and yield them one by one."""
        while line := stream.readline(LINE_LIMIT):
            self._write(line if line.endswith("\n") else f"{line}\n")
            yield line.rstrip("\n")

    def last_lines(self, rank: int) -> tuple[str, ...]:
        return tuple(self._last.get(rank, ()))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    def _write(self, text: str) -> None:
        with self._lock:
            if self._full:
                return
            try:
                self._file.write(text)
                self._written += len(text)
                if self._written > LOG_LIMIT:
                    self._full = True
                    self._file.write("[launcher] the log is cut here: the ranks print too much\n")
                self._file.flush()
            except OSError:
                # A full disk: the record's own writing will say so.
                self._full = True


def start_process(
    command: Sequence[str], environment: Mapping[str, str], pass_fds: Sequence[int] = (), *, die_with_us: bool = False
) -> subprocess.Popen[str]:
    """A process whose output, errors among it, comes line by line, in a group of its own: its helpers can be ended with
    it, and Ctrl-C reaches it through the launcher only.

    die_with_us: the kernel kills it when this process is gone; for programs that do not see to it themselves.
    """
    parent = os.getpid()
    return subprocess.Popen(
        list(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=pass_fds,
        preexec_fn=(lambda: die_with_parent(parent)) if die_with_us else None,
    )


def run_ranks(commands: Sequence[RankCommand], limits: Limits, log: LogWriter) -> Ending:
    """Start all ranks, wait for the common end, and leave no process behind."""
    processes: dict[int, subprocess.Popen[str]] = {}
    readers: list[threading.Thread] = []
    try:
        for command in commands:
            fds = inherited_fds(command.environment)
            processes[command.rank] = start_process(command.command, command.environment, fds)
        for rank, process in processes.items():
            reader = threading.Thread(target=log.copy, args=(rank, process.stdout), daemon=True)
            reader.start()
            readers.append(reader)
        ending = _watch(processes, limits)
        if not ending.kind:
            for line in _closing_notes(processes):
                log.note(line)
    finally:
        _end_all(processes, log)
        for reader in readers:
            reader.join(timeout=TERMINATE_GRACE_S)
    if ending.rank is None:
        return ending
    return replace(ending, last_lines=log.last_lines(ending.rank))


def inherited_fds(environment: Mapping[str, str]) -> tuple[int, ...]:
    """Under MPI, the descriptor over which a rank meets the others: its starter gave it to us, for the rank."""
    named = environment.get("PMI_FD", "")
    return (int(named),) if named.isdecimal() else ()


def _watch(processes: Mapping[int, subprocess.Popen[str]], limits: Limits) -> Ending:
    began = time.monotonic()
    all_started = False
    closing = Closing(limits, processes)
    while True:
        codes = {rank: process.poll() for rank, process in processes.items()}
        failed = {rank: code for rank, code in codes.items() if code and not limits.has_result(rank)}
        if failed:
            return _first_failure(processes, failed)
        if all(code is not None for code in codes.values()) or closing.lasts_too_long():
            return Ending()
        stop = limits.stop_reason()
        if stop:
            return Ending(*stop)
        elapsed = time.monotonic() - began
        all_started = all_started or all(limits.has_started(rank) for rank in processes)
        if not all_started and elapsed > limits.startup_timeout_s and (late := late_ranks(processes, limits)):
            return _startup_timeout(processes, late, limits)
        if elapsed > limits.time_limit_s:
            running = ", ".join(str(rank) for rank, code in codes.items() if code is None)
            reason = (
                f"not finished after the time limit of {limits.time_limit_s / 60:g} minutes (rank {running} running)"
            )
            return Ending(EndKind.TIME_LIMIT, reason)
        time.sleep(POLL_S)


class Closing:
    """Notices that every rank of a cell has left its result, and how long the last processes take to end since."""

    def __init__(self, limits: Limits, ranks: Iterable[int]) -> None:
        self._limits = limits
        self._waiting = list(ranks)
        self._asked_s = -math.inf
        self._since_s: float | None = None

    def lasts_too_long(self) -> bool:
        """Return whether the grace is over. Other nodes' results are looked for when all of `ranks` are there, and not
        too often: a parallel file system has better things to do.
        """
        now = time.monotonic()
        if self._since_s is None:
            while self._waiting and self._limits.has_result(self._waiting[-1]):
                self._waiting.pop()
            if self._waiting or now < self._asked_s + RESULTS_POLL_S:
                return False
            self._asked_s = now
            if not self._limits.has_all_results():
                return False
            self._since_s = now
        return now > self._since_s + self._limits.closing_grace_s


def _closing_notes(processes: Mapping[int, subprocess.Popen[str]]) -> Iterator[str]:
    """Yield what went wrong when ranks that had left their results closed; it costs the measurement nothing."""
    for rank, process in processes.items():
        code = process.poll()
        if code is None:
            yield f"rank {rank} had left its result and did not end by itself, so it is ended; the result counts"
        elif code:
            how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit status {code}"
            yield f"rank {rank} {how} after it had left its result, which counts"


def _startup_timeout(processes: Mapping[int, subprocess.Popen[str]], late: LateRanks, limits: Limits) -> Ending:
    return Ending(
        EndKind.STARTUP_TIMEOUT,
        f"rank {', '.join(map(str, late.ranks))} of {len(processes)} {late.what} after {limits.startup_timeout_s:g} s"
        f"{_stopped(processes, late.ranks)}",
        late.ranks[0],
    )


@dataclass(frozen=True)
class LateRanks:
    ranks: Sequence[int]
    what: str


def late_ranks(ranks: Iterable[int], limits: Limits) -> LateRanks | None:
    """Return the ranks that never came to the meeting point, or else those that never met the others: a rank that hangs
    keeps the others from starting too. None where the last one has started meanwhile.
    """
    waiting = [rank for rank in ranks if not limits.has_started(rank)]
    if not waiting:
        return None
    absent = [rank for rank in waiting if not limits.has_arrived(rank)]
    if absent:
        return LateRanks(absent, "had not come to the meeting point of the ranks")
    return LateRanks(waiting, "had not met the others")


def _first_failure(processes: Mapping[int, subprocess.Popen[str]], failed: dict[int, int]) -> Ending:
    """The rank that ended by a signal is the cause where others merely lost their connection to it."""
    rank = min(failed, key=lambda r: (failed[r] > 0, r))
    code = failed[rank]
    deadline = time.monotonic() + ACCOUNT_GRACE_S
    while time.monotonic() < deadline and any(process.poll() is None for process in processes.values()):
        time.sleep(POLL_S)
    if code < 0:
        return Ending(EndKind.KILLED, f"rank {rank} was ended by {signal_name(-code)}", rank, signal=-code)
    return Ending(EndKind.CRASH, f"rank {rank} ended with exit status {code}", rank)


def signal_name(number: int) -> str:
    """Return `SIGKILL`; most real-time signals have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _stopped(processes: Mapping[int, subprocess.Popen[str]], ranks: Sequence[int]) -> str:
    """Name the ranks that the kernel shows as stopped, where it can be asked (Linux)."""
    stopped = []
    for rank in ranks:
        with contextlib.suppress(OSError, IndexError):
            state = Path(f"/proc/{processes[rank].pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state in "Tt":
                stopped.append(str(rank))
    return f" (rank {', '.join(stopped)} is stopped)" if stopped else ""


def _end_all(processes: Mapping[int, subprocess.Popen[str]], log: LogWriter) -> None:
    for process in processes.values():
        _signal_group(process, signal.SIGTERM, only_running=True)
    deadline = time.monotonic() + TERMINATE_GRACE_S
    for process in processes.values():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
    for process in processes.values():
        # The group outlives its leader when a rank has started helpers of its own.
        _signal_group(process, signal.SIGKILL, only_running=False)
    deadline = time.monotonic() + UNKILLABLE_GRACE_S
    for rank, process in processes.items():
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.note(f"rank {rank} (process {process.pid}) does not end, not even by SIGKILL: look at its node")
    kill_descendants()
    for process in processes.values():
        if process.stdout and not process.stdout.closed and process.poll() is None:
            process.stdout.close()


def _signal_group(process: subprocess.Popen[str], number: signal.Signals, only_running: bool) -> None:
    if only_running and process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
