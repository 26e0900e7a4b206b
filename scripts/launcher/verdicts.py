"""From what the ranks left to the cell's outcome on disk: a record, or a failure kept beside the log."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contracts.atomic import write_json
from contracts.cell import Cell
from contracts.outcomes import EndKind
from contracts.placement import host_name
from launcher.host_load import others_cpu_s
from launcher.interpreter import SETUP_WORDS
from launcher.process_id import is_alive, this_process, was_before_boot
from launcher.processes import LAST_LINE_LIMIT, LAST_LINES, Ending
from workloads.exchange import Exchange, RankFailure
from workloads.lookup import load_workload
from workloads.thread_limits import openmp_lacked_a_thread

if TYPE_CHECKING:
    from launcher.part import PartReport

FAILURE_FILE = "failure.json"
RECORD_FILE = "record.json"
# Folders in which the ranks of one launch leave their accounts.
RANKS_PREFIX = "ranks-"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# How Python ends the account of a process that could not write its own.
DISK_FULL_WORDS = tuple(f"[Errno {number}]" for number in DISK_FULL)
ACCOUNT_BYTES = 4096


@dataclass(frozen=True)
class Failure:
    """Why a cell has no record; kept as failure.json beside its log until a later try succeeds.

    scheduler: what the scheduler says of the job, in its own words. launcher: the process that wrote this when it began
    (launcher/process_id.py); its account of the end has none.
    """

    kind: str
    reason: str
    rank: int | None
    last_lines: tuple[str, ...]
    at: str
    host: str
    job_id: str | None
    scheduler: str | None = None
    launcher: Mapping[str, Any] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the launcher is at work still, as far as that can be seen from here."""
        return self.launcher is not None and is_alive(self.launcher) is True

    @property
    def may_be_running(self) -> bool:
        """Whether the launcher began where nobody can see from here if it is still at work."""
        if self.launcher is None or is_alive(self.launcher) is not None:
            return False
        return not (self.host == host_name() and was_before_boot(self.launcher))

    @property
    def full_reason(self) -> str:
        return f"{self.scheduler}; {self.reason}" if self.scheduler else self.reason


@dataclass(frozen=True)
class Verdict:
    """`status` is a record's status, or "" where there must be none and `kind` says why."""

    status: str
    reason: str = ""
    kind: str = ""
    rank: int | None = None
    last_lines: tuple[str, ...] = ()


def judge(ending: Ending, exchange: Exchange, cell: Cell, killed_for_memory: bool) -> Verdict:
    """What the ranks' common end means: a record's status, or why there must be none."""
    exchange.look_again()
    num_ranks = cell.num_gpus
    failures = [f for f in (exchange.read_failure(rank) for rank in range(num_ranks)) if f is not None]
    for status in ("oom", "not_available"):
        first = _earliest([f for f in failures if f.status == status])
        if first:
            return Verdict(status, f"rank {first.rank}: {first.message}")
    # The kernel kills for memory with SIGKILL; a part that ended before it could report has no signal to tell.
    if ending.kind == EndKind.KILLED and ending.signal in (None, signal.SIGKILL) and killed_for_memory:
        who = "the processes were" if ending.rank is None else f"rank {ending.rank} was"
        return Verdict("oom", f"{who} killed for memory: the host, or the job's share of it, ran out of it")
    if killed_for_memory and openmp_lacked_a_thread(ending.last_lines):
        return Verdict("oom", f"rank {ending.rank} had no memory for another thread, and OpenMP ended it")
    if ending.kind:
        # An orderly failure explains more than an exit status; a signal explains the others' failures.
        first = _earliest(failures) if ending.kind == EndKind.CRASH else None
        if first:
            # The launcher may have met the end of another rank first; then the lines are found in the log.
            lines = ending.last_lines if first.rank == ending.rank else ()
            return Verdict("", f"rank {first.rank}: {first.message}", EndKind.CRASH, first.rank, lines)
        full = next((line for line in ending.last_lines if any(word in line for word in DISK_FULL_WORDS)), "")
        if ending.kind == EndKind.CRASH and full:
            reason = f"rank {ending.rank}: {full.strip()}; make room and run again"
            return Verdict("", reason, EndKind.DISK_FULL, ending.rank, ending.last_lines)
        # A rank that never came to be Python: its exit status alone says nothing.
        setup = next((f"{line}: " for line in ending.last_lines if line.startswith(SETUP_WORDS)), "")
        return Verdict("", f"{setup}{ending.reason}", ending.kind, ending.rank, ending.last_lines)
    results = [exchange.read_result(rank) for rank in range(num_ranks)]
    for rank, result in enumerate(results):
        if result is None:
            return Verdict("", f"rank {rank} ended well but left no result", EndKind.CRASH, rank)
        if result["world_size"] != num_ranks:
            return Verdict(
                "", f"rank {rank} ran in a world of {result['world_size']}, not {num_ranks}", EndKind.CRASH, rank
            )
    found = load_workload(cell.workload).judge(cell, [result for result in results if result is not None])
    return Verdict(found.status, found.reason, "" if found.status else EndKind.CRASH, found.rank)


def _earliest(failures: Sequence[RankFailure]) -> RankFailure | None:
    return min(failures, key=lambda failure: failure.unix_s, default=None)


def gathered(exchange: Exchange, num_ranks: int) -> dict[str, Any]:
    """The record's `ranks`, `settings`, `versions` and what the framework reported, of as many ranks as there are."""
    results = [r for r in (exchange.read_result(rank) for rank in range(num_ranks)) if r is not None]
    first: Mapping[str, Any] = results[0] if results else {"settings": {"initial_weights": None}, "versions": {}}
    said = next((r["reported"] for r in results if r["reported"]), {})
    return {
        "ranks": [r["rank"] for r in results],
        "settings": first["settings"],
        "versions": first["versions"],
        **({"reported_by_framework": said} if said else {}),
    }


def write_failure(folder: Path, failure: Failure) -> None:
    """Write the account of a cell, in the place of the former one where the disk has no room for another file."""
    path = folder / FAILURE_FILE
    try:
        write_json(path, asdict(failure))
    except OSError as error:
        if error.errno not in DISK_FULL or not _write_over(path, failure):
            raise


def kept_failure(folder: Path, failure: Failure) -> Failure:
    """Write an account, unless a record came meanwhile, and return it. Where it cannot be kept, it says so itself."""
    if (folder / RECORD_FILE).is_file():
        return failure
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_failure(folder, failure)
    except OSError as error:
        said = f"{failure.reason} (this could not be kept beside the cell: {error.strerror or error})"
        return replace(failure, reason=said)
    return failure


def _write_over(path: Path, failure: Failure) -> bool:
    """Write an account into the room that the former one has; return whether there was one that is long enough."""
    if not path.is_file():
        return False
    room = path.stat().st_size
    for lines in (failure.last_lines, ()):
        text = json.dumps(asdict(replace(failure, last_lines=lines))).encode()
        if len(text) < room:
            with path.open("r+b") as file:
                file.write(text.ljust(room - 1) + b"\n")
            return True
    return False


def launch_facts(reports: Sequence[PartReport]) -> dict[str, Any]:
    """The record's `launch`, as far as the parts know it: of several the smallest share of cores, the longest time and
    the most that others used on a node.
    """
    first = min(reports, key=lambda report: report.threads_per_process)
    by_node: dict[int, list[PartReport]] = {}
    for report in reports:
        by_node.setdefault(report.node, []).append(report)
    others = [
        (others_cpu_s([part.host_cpu_s for part in parts], [part.own_cpu_s for part in parts]), parts[0].counted_cores)
        for parts in by_node.values()
    ]
    known = [(seconds, cores) for seconds, cores in others if seconds is not None]
    busiest = max(known, key=lambda node: node[0]) if len(known) == len(others) else (None, None)
    return {
        "hosts": list({report.node: report.host for report in reports}.values()),
        "cpu_cores": first.cpu_cores,
        "threads_per_process": first.threads_per_process,
        "environment": dict(first.settings),
        "wall_s": max(report.wall_s for report in reports),
        "others_cpu_s": busiest[0],
        "others_cpu_cores": busiest[1],
    }


def clear_former_launch(folder: Path, job_id: str | None) -> None:
    """Remove what a launcher that was killed left, and note the same for this one until it gives its own account."""
    for left in folder.glob(f"{RANKS_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    reason = "the launcher was killed before it could say why"
    launcher = this_process().as_dict()
    begun = Failure(EndKind.INTERRUPTED, reason, None, (), now(), host_name(), job_id, launcher=launcher)
    write_failure(folder, begun)
    # Room for the account of the end, should the disk be full by then; a reader of JSON passes over it.
    with (folder / FAILURE_FILE).open("ab") as file:
        file.write(b" " * ACCOUNT_BYTES)


def read_failure(folder: Path) -> Failure | None:
    """None where there is none, or none that can be read: it is a hint beside a missing record, never a result."""
    try:
        data = json.loads((folder / FAILURE_FILE).read_text(encoding="utf-8"))
        return Failure(**{**data, "last_lines": tuple(data["last_lines"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def remove_stray_failure(folder: Path) -> None:
    """Remove the account of a try whose launcher was killed when its record was there already, or of one before it."""
    failure = read_failure(folder)
    if failure is not None and not failure.is_running:
        with suppress(OSError):  # another user's, perhaps
            (folder / FAILURE_FILE).unlink(missing_ok=True)


def log_tail(path: Path, rank: int | None = None) -> tuple[str, ...]:
    """Return the last lines of a cell's log: those of one rank, without its number, or those of all."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    lines = [line for line in text.splitlines() if not line.startswith("[launcher]")]
    if rank is not None:
        lines = [line.removeprefix(f"[rank {rank}] ") for line in lines if line.startswith(f"[rank {rank}] ")]
    return tuple(line[:LAST_LINE_LIMIT] for line in lines[-LAST_LINES:])


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """Commit of the checkout and whether tracked files differ from it; None, None where that is not known."""
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit, bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
