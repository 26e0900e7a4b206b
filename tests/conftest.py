"""For all tests: what stays together in one process, what Ctrl-C means, and the frameworks' own Pythons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from planning.adaptors import environment_digest

ROOT = Path(__file__).parents[1]
# Folders whose tests share something dear: one Slurm, one measured project.
TOGETHER = ("slurm", "workflow")


LOCK_VARIABLE = "SCALING_EVAL_HOST_LOCK"


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with SIGINT ignored, and every process below would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # On a host with GPUs the tests measure its CPU, as everywhere else; those of CUDA's side say what the driver shows.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # The user's cells and those of tests do not wait for each other; several processes of one run (xdist) do.
    if not hasattr(config, "workerinput"):
        os.environ[LOCK_VARIABLE] = f"{tempfile.gettempdir()}/scaling-eval-tests-{os.getpid()}.lock"


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        Path(os.environ.pop(LOCK_VARIABLE)).unlink(missing_ok=True)


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
        # Not a skip: what a missing environment disables must not pass for green.
        pytest.fail(f"envs/{name}.txt could not be installed:\n" + "\n".join(done.stdout.splitlines()[-30:]))
    return str(ROOT / (ROOT / f"{folder}.txt").read_text().strip())
