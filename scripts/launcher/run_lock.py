"""Who holds Snakemake's lock on this folder: notes that its processes write, and whether these processes are gone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.atomic import write_json
from contracts.placement import host_name
from launcher.process_id import is_alive, this_process
from launcher.verdicts import now

# Snakemake's locks in a project's folder do not say who made them, so each call leaves a note of its own: calls for
# different studies may be at work side by side.
LOCKS = Path(".snakemake") / "locks"
OWNERS = Path(".snakemake") / "lock-owners"


@dataclass(frozen=True)
class Owner:
    """A process that locked the folder; `is_alive` is None where that cannot be told from here."""

    pid: int | None
    host: str
    since: str
    command: str
    is_alive: bool | None

    def words(self) -> str:
        """`process 42 on n1 since 2026-11-29T12:00:00+00:00 (demo)`"""
        command = f" ({self.command})" if self.command else ""
        return f"process {self.pid} on {self.host} since {self.since}{command}"


def note_owner(folder: Path) -> None:
    """Note this process as one that has just locked `folder`, and remove the notes of those that are gone."""
    for path, data in list(_notes(folder)):
        if is_alive(data.get("process")) is False:
            path.unlink(missing_ok=True)
    process = this_process().as_dict()
    note = {"process": process, "host": host_name(), "since": now(), "command": " ".join(sys.argv[1:])}
    write_json(folder / OWNERS / f"{host_name()}-{process['pid']}.json", note)


def owners(folder: Path) -> list[Owner]:
    """Return the processes that noted themselves as owners of a lock, dead or alive."""
    return [_owner(data) for _, data in _notes(folder)]


def is_left_behind(folder: Path) -> bool:
    """Return whether the folder is locked, and by nobody but processes of this machine that are certainly gone.

    A lock that is newer than all notes is somebody else's, perhaps on another login node.
    """
    try:
        locked = [path.stat().st_mtime_ns for path in (folder / LOCKS).iterdir()]
        noted = [path.stat().st_mtime_ns for path, _ in _notes(folder)]
    except OSError:
        return False
    if not locked or not noted or max(locked) > max(noted):
        return False
    return all(owner.is_alive is False for owner in owners(folder))


def locked_outputs(folder: Path) -> frozenset[str]:
    """Return the paths that calls at work in the folder will write, as Snakemake has noted them."""
    found: set[str] = set()
    for path in (folder / LOCKS).glob("*.output.lock"):
        try:
            found.update(path.read_text(encoding="utf-8", errors="replace").splitlines())
        except OSError:  # its call has ended meanwhile
            continue
    return frozenset(found)


def refusal(folder: Path) -> str:
    """Return what to tell a call that wants what is locked in the folder: who holds it, and what to do."""
    found = owners(folder)
    alive = [owner for owner in found if owner.is_alive]
    if alive:
        return (
            f"another call is at work in this folder: {_words(alive)}. Wait for its end, or end it with Ctrl-C in its "
            f"terminal or `kill -INT {alive[0].pid}`; python scripts/status.py shows how far it is, and a dry run (-n) "
            f"is possible meanwhile"
        )
    if is_left_behind(folder):
        return (
            f"a call that was killed has left its lock on this folder behind: {_words(found)}, which is gone. ./run "
            f"takes the lock away by itself; otherwise call snakemake --unlock once, and then the same command again"
        )
    seen = _words([owner for owner in found if owner.is_alive is None]) or "it has left no word of who it is"
    return (
        f"another call is at work in this folder, or was killed and has left its lock behind: {seen}. That cannot be "
        f"told from here. Look for it on every machine that sees this folder; when none is at work, take the lock away "
        "with snakemake --unlock, and call again"
    )


def _words(found: Sequence[Owner]) -> str:
    return "; ".join(owner.words() for owner in found)


def _owner(data: Mapping[str, Any]) -> Owner:
    process = data.get("process")
    pid = process.get("pid") if isinstance(process, dict) else None
    texts = [str(data.get(key, "an unknown time" if key == "since" else "")) for key in ("host", "since", "command")]
    return Owner(pid, *texts, is_alive(process))


def _notes(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted((folder / OWNERS).glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(data, dict):
            yield path, data
