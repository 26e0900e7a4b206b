"""Whose lock it is: a lock is removed only where the process that took it is certainly gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.process_id import is_alive, this_process
from launcher.run_lock import LOCKS, OWNERS, is_left_behind, locked_outputs, note_owner, owners, refusal
from launcher.stop import StopRequest
from records.code_digests import SCRIPTS

NOTE = "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
NOTE += "from launcher.run_lock import note_owner; note_owner(Path(sys.argv[2]))"


def note_of(folder: Path) -> Path:
    (note,) = (folder / OWNERS).iterdir()
    return note


def change_note(folder: Path, **changes: object) -> None:
    note = note_of(folder)
    data = json.loads(note.read_text())
    note.write_text(json.dumps({**data, "process": data["process"] | changes}))


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A folder with Snakemake's lock, taken by a process that has ended since."""
    (tmp_path / LOCKS).mkdir(parents=True)
    (tmp_path / LOCKS / "0.input.lock").touch()
    (tmp_path / LOCKS / "0.output.lock").write_text("results/a.csv\nresults/b.csv\n")
    subprocess.run([sys.executable, "-c", NOTE, str(SCRIPTS), str(tmp_path)], check=True)
    return tmp_path


def test_the_lock_of_a_process_that_is_gone_is_left_behind(locked: Path) -> None:
    assert is_left_behind(locked)
    assert "which is gone. ./run takes the lock away by itself" in refusal(locked)
    assert locked_outputs(locked) == {"results/a.csv", "results/b.csv"}
    for lock in (locked / LOCKS).iterdir():
        lock.unlink()
    assert not is_left_behind(locked)
    assert not locked_outputs(locked)


def test_the_lock_of_a_living_process_is_not(locked: Path) -> None:
    note_owner(locked)
    assert not is_left_behind(locked)
    assert f"another call is at work in this folder: process {os.getpid()} on " in refusal(locked)
    assert f"`kill -INT {os.getpid()}`" in refusal(locked)
    assert "--unlock" not in refusal(locked)


def test_a_call_beside_another_that_ends_first_leaves_no_lock_behind(locked: Path) -> None:
    """Calls for two studies: what the one that lives has locked is not for others to take away."""
    note_owner(locked)
    subprocess.run([sys.executable, "-c", NOTE, str(SCRIPTS), str(locked)], check=True)
    assert sorted(owner.is_alive for owner in owners(locked)) == [False, True]
    assert not is_left_behind(locked)
    assert f"process {os.getpid()} on" in refusal(locked)


def test_a_lock_that_is_newer_than_the_note_is_somebody_elses(locked: Path) -> None:
    later = note_of(locked).stat().st_mtime_ns + 1
    os.utime(locked / LOCKS / "0.input.lock", ns=(later, later))
    assert not is_left_behind(locked)
    assert "That cannot be told from here" in refusal(locked)


@pytest.mark.parametrize("change", [{"place": "another login node"}, {"user": os.getuid() + 1}, None])
def test_of_another_machine_or_user_or_nobody_nothing_is_known(locked: Path, change: dict[str, object] | None) -> None:
    if change is None:
        note_of(locked).unlink()
    else:
        change_note(locked, **change)
    assert not is_left_behind(locked)
    assert "take the lock away with snakemake --unlock" in refusal(locked)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"process": 3}', '{"process": {"pid": 1}}'])
def test_a_note_that_says_nothing_is_no_owner_that_is_gone(locked: Path, content: str) -> None:
    note_of(locked).write_text(content)
    assert not is_left_behind(locked)
    assert refusal(locked)


def test_a_number_that_was_given_out_again_is_another_process() -> None:
    me = this_process().as_dict()
    assert is_alive(me) is True
    assert is_alive(me | {"started_ticks": me["started_ticks"] - 1}) is False
    assert is_alive({"pid": 1}) is None


def test_a_process_that_nobody_has_waited_for_is_gone(tmp_path: Path) -> None:
    """In a container without an init it stays in the kernel's list."""
    with subprocess.Popen([sys.executable, "-c", NOTE, str(SCRIPTS), str(tmp_path)]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_alive(json.loads(note_of(tmp_path).read_text())["process"]) is False


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """`nohup ./run &`: the cell goes on when the terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = StopRequest([signal.SIGHUP])
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.reason() is None
    finally:
        signal.signal(signal.SIGHUP, before)
