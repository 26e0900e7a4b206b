"""A thread that cannot be made: out of memory where memory is limited, and no result where threads are."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from factories import make_cell
from launcher.processes import Ending
from launcher.verdicts import judge
from workloads import memory, thread_limits
from workloads.exchange import Exchange
from workloads.thread_limits import OPENMP_TEXTS, memory_is_limited, tasks_ran_out

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
NO_LIMIT = resource.RLIM_INFINITY
MESSAGES = ["Resource temporarily unavailable", "can't start new thread"]

# A limit that leaves room for a few threads' stacks, and then as many threads as it takes.
EXHAUST = """
import threading
from workloads.child import limit_memory
from workloads.memory import is_out_of_memory
limit_memory({limit_gib})
stop = threading.Event()
threading.stack_size(64 * 2**20)
try:
    for _ in range(2000):
        threading.Thread(target=stop.wait, daemon=True).start()
except RuntimeError as error:
    print(error, is_out_of_memory(error))
stop.set()
"""


@pytest.mark.parametrize("message", MESSAGES)
def test_want_of_memory_is_told_from_want_of_threads(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for limited, ran_out, expected in ((True, False, True), (True, True, False), (False, False, False)):
        monkeypatch.setattr(thread_limits, "memory_is_limited", lambda limited=limited: limited)
        monkeypatch.setattr(thread_limits, "tasks_ran_out", lambda ran_out=ran_out: ran_out)
        assert memory.is_out_of_memory(RuntimeError(message)) is expected
        assert not memory.is_out_of_memory(RuntimeError(f"[gloo/transport/tcp/pair.cc:1] {message}"))


def test_a_real_process_with_too_little_memory_for_threads() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXHAUST.format(limit_gib=0.5)], cwd=SCRIPTS, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "can't start new thread True\n", done.stderr


def host(folder: Path, *, threads: int, most: int = 10_000, overcommit: int = 0) -> Path:
    """A /proc of two processes of this user and one of another."""
    for number, (user, count) in enumerate([(os.getuid(), threads - 1), (os.getuid(), 1), (os.getuid() + 1, 500)]):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "status").write_text(f"Name:\\tx\nUid:\t{user}\t{user}\t0\t0\nThreads:\t{count}\n")
    for path, text in (("sys/kernel/threads-max", most), ("sys/vm/overcommit_memory", overcommit)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"{text}\n")
    (folder / "loadavg").write_text(f"0.1 0.2 0.3 2/{threads + 500} 4711\n")
    return folder


@pytest.mark.parametrize(
    ("threads", "limit", "user", "expected"),
    [
        (100, 100, 1000, True),
        (50, 100, 1000, False),
        (100, 100, 0, False),
        (100, NO_LIMIT, 1000, False),
    ],
)
def test_the_limit_of_a_users_threads(
    threads: int, limit: int, user: int, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    proc = host(tmp_path / "proc", threads=threads)
    assert tasks_ran_out(proc, tmp_path / "none", tmp_path, limit) is expected


@pytest.mark.parametrize(
    ("current", "most", "expected"), [("64", "64", True), ("10", "64", False), ("64", "max", False)]
)
def test_the_limit_of_a_control_group(current: str, most: str, expected: bool, tmp_path: Path) -> None:
    group = tmp_path / "mounts" / "pids" / "job"
    group.mkdir(parents=True)
    (tmp_path / "cgroup").write_text("8:pids:/job\n")
    (group / "pids.current").write_text(current)
    (group / "pids.max").write_text(most)
    proc = host(tmp_path / "proc", threads=64)
    assert tasks_ran_out(proc, tmp_path / "cgroup", tmp_path / "mounts", NO_LIMIT) is expected


def test_the_hosts_own_limits(tmp_path: Path) -> None:
    full = host(tmp_path / "full", threads=100, most=600, overcommit=2)
    assert tasks_ran_out(full, tmp_path / "none", tmp_path, NO_LIMIT)
    assert memory_is_limited(full)
    assert not tasks_ran_out(tmp_path / "no proc", tmp_path / "none", tmp_path, NO_LIMIT)


@pytest.mark.parametrize("text", OPENMP_TEXTS)
def test_what_openmp_ends_for_want_of_a_thread(text: str, tmp_path: Path) -> None:
    """It prints a line and leaves: no Python error, and an exit status that says nothing."""
    ending = Ending("crash", "rank 1 ended with exit status 1", 1, ("step 3", text))
    verdict = judge(ending, Exchange(tmp_path), make_cell("torch_ddp", 2), killed_for_memory=True)
    assert verdict.status == "oom"
    assert verdict.reason == "rank 1 had no memory for another thread, and OpenMP ended it"
    assert judge(ending, Exchange(tmp_path), make_cell("torch_ddp", 2), killed_for_memory=False).kind == "crash"
