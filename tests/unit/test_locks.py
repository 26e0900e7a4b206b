"""File systems without locks, such as Lustre without its mount option flock: one sentence, and what to do."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from installation import turns
from launcher.host_lock import LOCK_VARIABLE, host_lock

WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


@pytest.fixture(params=WITHOUT_LOCKS, ids=errno.errorcode.get)
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what the system calls the answer of flock(2): of a test double, as no such file system can be mounted."""

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", refuse)
    return os.strerror(request.param)


def test_no_cell_is_timed_without_a_lock(no_locks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "host.lock"
    monkeypatch.setenv(LOCK_VARIABLE, str(path))
    with pytest.raises(ValueError) as refused, host_lock(lambda text: None, lambda: True):
        pass
    assert str(refused.value).startswith(f"{path} cannot be locked ({no_locks})")
    assert f"set {LOCK_VARIABLE} to a file on a local disk" in str(refused.value)


def test_an_environment_is_made_without_a_lock_and_it_is_told(
    no_locks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "a.lock").open("a") as lock:
        turns.wait_for_turn(lock.fileno(), lock.name, "environments/a")
    told = capsys.readouterr().err
    assert told.startswith(f"{lock.name} cannot be locked ({no_locks}), so nothing keeps two calls")
    assert told.count("\n") == 1


def test_the_setup_of_run_waits_for_its_turn(tmp_path: Path) -> None:
    with (tmp_path / "a.lock").open("a") as ours, (tmp_path / "a.lock").open("a") as theirs:
        fcntl.flock(ours, fcntl.LOCK_EX)
        command = [sys.executable, turns.__file__, str(theirs.fileno()), "a.lock", "a"]
        waiting = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stderr=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=1)
        fcntl.flock(ours, fcntl.LOCK_UN)
        assert waiting.communicate(timeout=60)[1] == "" and waiting.returncode == 0
