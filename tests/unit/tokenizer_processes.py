"""Wait for what the processes of the tokenizer do."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil

WAIT_S = 30


def children_of(process: subprocess.Popen) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_until(condition, what: str):
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {WAIT_S} s for {what}")


def working(process: subprocess.Popen, output: Path) -> list[psutil.Process]:
    """Wait until the script's workers are there and tokens are being written; return the workers."""

    def ready():
        assert process.poll() is None, f"ended early: {process.stderr.read()}"
        written = [path for path in output.parent.glob(f".{output.name}.*") if path.stat().st_size]
        return children_of(process) if written and len(children_of(process)) == 2 else []

    return wait_until(ready, "workers at work")


def all_gone(workers: list[psutil.Process]) -> None:
    wait_until(lambda: not any(worker.is_running() and worker.status() != "zombie" for worker in workers), "their end")
