"""A copy of the project in which tests run the real workflow on a tiny matrix."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from project_copy import copy_project_files

ROOT = Path(__file__).resolve().parents[2]

TINY = {
    "num_layers": 2, "hidden_size": 8, "num_heads": 2, "seq_length": 8, "vocab_size": 50304, "source": "tests",
}  # fmt: skip
# Long enough batches that a test can meet a cell in the middle of its eleven.
SLOW = {**TINY, "num_layers": 4, "hidden_size": 64, "seq_length": 192}
# Parameters, gradients and optimizer state alone take 0.8 GB.
BIG = {**TINY, "hidden_size": 512}
STUDY = {
    "title": "tests",
    "paper": "axonn",
    "tables": ["strong_scaling"],
    "frameworks": {"torch_ddp": None, "torch_plain": None},
    "global_batch_size": 2,
    "comparisons": {"main": {"scaling": "strong", "cross": {"models": ["tiny"], "num_gpus": [1]}}},
}


@dataclass(frozen=True)
class Run:
    """An ended call of Snakemake."""

    returncode: int
    output: str
    log: str = ""  # Snakemake's own, where the call has left one

    @property
    def nothing_done(self) -> bool:
        return "Nothing to be done" in self.output

    def jobs(self, rule: str) -> int:
        """How many jobs of a rule Snakemake's job table lists: that of a dry run, or that of the log."""
        found = re.search(rf"^{rule}\s+(\d+)\s*$", f"{self.output}\n{self.log}", re.MULTILINE)
        return int(found.group(1)) if found else 0


@dataclass(frozen=True)
class Project:
    root: Path

    def write_study(self, name: str = "tiny", **changes: Any) -> None:
        self.write_yaml(f"config/studies/{name}.yaml", {**STUDY, **changes})

    def write_yaml(self, path: str, data: Any) -> None:
        (self.root / path).write_text(yaml.safe_dump(data, sort_keys=False))

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.root / path
        text = file.read_text()
        assert old in text, f"{path} has no {old!r}"
        file.write_text(text.replace(old, new))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", "--profile", "profiles/local", *arguments]

    def snakemake(self, *arguments: str, timeout: float = 240) -> Run:
        return self.finish(self.command(*arguments), timeout)

    def script(self, name: str, *arguments: str) -> Run:
        return self.finish([sys.executable, f"scripts/{name}", *arguments], 120)

    def start(self, *arguments: str, command: list[str] | None = None) -> subprocess.Popen[str]:
        """Snakemake in the background, in a process group of its own; output goes to output.txt."""
        return subprocess.Popen(
            command or self.command(*arguments),
            cwd=self.root,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=(self.root / "output.txt").open("w"),
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def records(self) -> list[Path]:
        return sorted(self.root.glob("results/*/cells/**/record.json"))

    def record(self, framework: str, num_gpus: int = 1, system: str = "local") -> Path:
        (found,) = self.root.glob(f"results/{system}/cells/{framework}/*/{num_gpus}gpu/*/repeat1/record.json")
        return found

    def failure(self, framework: str, num_gpus: int) -> dict[str, Any]:
        (found,) = self.root.glob(f"results/local/cells/{framework}/*/{num_gpus}gpu/*/repeat1/failure.json")
        return json.loads(found.read_text())

    def measurements(self, study: str = "tiny") -> list[dict[str, str]]:
        import csv

        with (self.root / "results" / "local" / study / "measurements.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def table(self, name: str, study: str = "tiny") -> str:
        return (self.root / "results" / "local" / study / "tables" / f"{name}.md").read_text()

    def processes(self) -> list[psutil.Process]:
        """Every process of this copy: those that work in its folder or name it on their command line."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and (
                    process.cwd() == str(self.root) or any(str(self.root) in word for word in process.cmdline())
                ):
                    found.append(process)
        return found

    def ranks(self) -> dict[int, psutil.Process]:
        """The training processes that are alive, by rank."""
        found = {}
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if any(word.endswith("train.py") for word in process.cmdline()):
                    found[int(process.environ()["RANK"])] = process
        return found

    def snakemake_logs(self) -> list[Path]:
        """The logs of all calls that started something, the newest last."""
        return sorted(self.root.glob(".snakemake/log/*.snakemake.log"))

    def started_ranks(self) -> int:
        return len(list(self.root.glob("results/*/cells/**/ranks-*/*.started")))

    def finish(self, command: list[str], timeout: float) -> Run:
        before = self.snakemake_logs()
        done = subprocess.run(
            command, cwd=self.root, env=environment(), capture_output=True, text=True, timeout=timeout,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        logs = [path.read_text() for path in self.snakemake_logs() if path not in before]
        return Run(done.returncode, done.stdout + done.stderr, "".join(logs))


def write_double(project: Project, name: str, adaptor: str) -> None:
    """Add an adaptor that is built on the test double `nothing`, which trains nothing and needs NumPy alone."""
    adaptors = project.root / "scripts" / "frameworks"
    (adaptors / "nothing.py").write_text((ROOT / "tests" / "data" / "nothing.py").read_text())
    (adaptors / f"{name}.py").write_text(adaptor)
    (project.root / "envs" / "nothing.txt").write_text("numpy==2.4.6\n")
    system = {"description": "tests", "device": "cpu", "environments": {"nothing": {"kind": "workflow"}}}
    project.write_yaml("config/systems/local.yaml", system)


def environment() -> Mapping[str, str]:
    """Without what pytest or a CI sets for its own Python."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SNAKEMAKE_PROFILE")}


def copy_project(target: Path) -> Project:
    project = Project(copy_project_files(ROOT, target))
    models = yaml.safe_load((target / "config" / "models.yaml").read_text())
    project.write_yaml("config/models.yaml", {**models, "tiny": TINY, "slow": SLOW, "big": BIG})
    project.write_study()
    return project


def wait_until(condition: Callable[[], Any], what: str, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for: {what}"
        time.sleep(0.05)


@contextlib.contextmanager
def ended_afterwards(project: Project) -> Iterator[None]:
    """Whatever a test leaves running in its copy is killed, and only that."""
    try:
        yield
    finally:
        for process in project.processes():
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
