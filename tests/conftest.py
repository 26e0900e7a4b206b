"""For all tests: what stays together in one process, what Ctrl-C means, and the frameworks' own Pythons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from matrix.frameworks import environment_digest

ROOT = Path(__file__).parents[1]
# Folders whose tests share something dear: one Slurm, one measured project.
TOGETHER = ("slurm", "workflow")


def pytest_configure() -> None:
    # A shell starts background jobs with SIGINT ignored, and every process below would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes (pytest-xdist) a folder of TOGETHER, or else a file, is one process's work."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, _ = nodeid.partition("::")
            folder = Path(file).parent
            return folder.name if folder.name in TOGETHER else file

    return Together(config, log)


@pytest.fixture(scope="session")
def axonn_paper_python() -> str:
    """Of the environment of AxoNN, Megatron-LM and DeepSpeed."""
    return framework_python("axonn_paper")


@pytest.fixture(scope="session")
def horovod_python() -> str:
    """Of Horovod's environment, which is built from its source the first time (about four minutes on two cores)."""
    return framework_python("horovod")


def framework_python(name: str) -> str:
    """The interpreter of `envs/<name>.txt` in the checkout's environments/, made as the workflow makes it."""
    folder = f"environments/venv-{name}"
    command = [sys.executable, "scripts/make_venv.py", "--requirements", f"envs/{name}.txt"]
    command += ["--folder", f"{folder}/{environment_digest(name, ROOT)}", "--output", f"{folder}.txt"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        # In CI an environment that cannot be had is a failure: skipped tests there would go unnoticed.
        stop = pytest.fail if os.environ.get("CI_REQUIRES_ALL") else pytest.skip
        stop(f"envs/{name}.txt could not be installed: {done.stdout.strip().splitlines()[-1]}")
    return (ROOT / f"{folder}.txt").read_text().strip()
