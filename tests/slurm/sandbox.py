"""A real Slurm on this machine, for tests: munged, slurmctld and a few slurmds as virtual nodes with fake GPUs.

By hand, as root: `python tests/slurm/sandbox.py --install`, then `--up DIR`, and `--down DIR` at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import TypeVar

import psutil

from machine import (
    CONFIG_FILES,
    ETC,
    MARKER,
    SandboxError,
    end,
    free_ports,
    install_slurm,
    other_slurm,
    processes_that,
    sandbox_in_etc,
    start_munged,
)

Result = TypeVar("Result")

TEMPLATES = Path(__file__).parent / "etc"
STATE = "sandbox.json"
ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
}  # fmt: skip
DOWN = ("down", "drain", "drng")  # with a * when the node is silent
# Control characters, since comments and paths may hold any printable one.
FIELD, RECORD = "\x1f", "\x1e"


@dataclass(frozen=True)
class Job:
    job_id: str
    state: str  # in full, as RUNNING
    reason: str
    nodes: str  # as Slurm writes them: n[1-2]
    comment: str
    workdir: str

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass
class Sandbox:
    folder: Path
    nodes: int
    gpus: int
    # In the environment of all its jobs' processes, and of no others: SLURM_CLUSTER_NAME.
    cluster: str
    # The process it is for, by id and start time. Once that is gone, the next sandbox ends this one.
    owner: tuple[int, float]
    # The munged that was started for it, if any.
    munged: int | None = None

    @classmethod
    def start(cls, folder: Path, nodes: int = 3, gpus: int = 4, owner: int | None = None) -> Sandbox:
        """Nodes n1 to nN, idle. `owner` is the id of the process that it is for; without one, it is this process."""
        clear_etc()
        folder = folder.resolve()
        if (folder / STATE).exists():  # of a sandbox that has ended: a running one would have /etc/slurm
            shutil.rmtree(folder)
        port = free_ports(nodes + 1)
        process = psutil.Process(owner)
        sandbox = cls(folder, nodes, gpus, f"sandbox{port}", (process.pid, process.create_time()))
        sandbox._write_folder(port)
        try:
            # The marker comes first: by it the others are known to be ours.
            for link, target in sandbox.links().items():
                link.symlink_to(target)
            sandbox.munged = start_munged()
            sandbox._save()
            sandbox._daemon("slurmctld")
            for node in sandbox.names:
                sandbox.start_slurmd(node)
            sandbox.wait_for(sandbox.all_idle, 30, "all nodes idle")
        except BaseException:
            sandbox.stop()
            raise
        return sandbox

    @classmethod
    def load(cls, folder: Path) -> Sandbox:
        """One that another process started."""
        if not (folder / STATE).exists():
            raise SandboxError(f"no sandbox was started in {folder}")
        state = json.loads((folder / STATE).read_text())
        return cls(**{**state, "folder": Path(state["folder"]), "owner": tuple(state["owner"])})

    def stop(self) -> None:
        """End its jobs, its daemons and what they left, and take its links away; also when some of that is gone."""
        if self._processes("slurmctld"):
            with contextlib.suppress(SandboxError, subprocess.SubprocessError):  # what stays is killed below
                self.cancel_jobs()
        end(self._processes("slurmd", "slurmctld"), patience_s=10)
        end([*self._processes("slurmstepd"), *self._job_processes()])
        end(processes_that(lambda process: (process.pid, process.name()) == (self.munged, "munged")), patience_s=10)
        for link, target in reversed(self.links().items()):
            if link.is_symlink() and link.readlink() == target:
                link.unlink()

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.nodes + 1)]

    @property
    def owned(self) -> bool:
        """The process it is for is alive."""
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.owner[0]).create_time() == self.owner[1]
        return False

    def links(self) -> dict[Path, Path]:
        """What it puts into /etc/slurm."""
        return {ETC / MARKER: self.folder, **{ETC / name: self.folder / "etc" / name for name in CONFIG_FILES}}

    def jobs(self) -> list[Job]:
        """Those that have ended too, for MinJobAge."""
        fields = FIELD.join(("%i", "%T", "%r", "%N", "%k", "%Z"))
        records = self.slurm("squeue", "--states=all", "-h", "-o", fields + RECORD).split(RECORD)
        return [Job(*record.strip("\n").split(FIELD)) for record in records[:-1]]

    def cancel_jobs(self) -> list[Job]:
        """Cancel what waits or runs, and wait until all has ended; what was cancelled."""
        cancelled: dict[str, Job] = {}

        def all_ended() -> bool:
            left = [job for job in self.jobs() if not job.ended]
            # Again and again: a job that is ending may go back into the queue.
            if live := {job.job_id: job for job in left if job.state != "COMPLETING"}:
                self.slurm("scancel", "--quiet", *live)
                cancelled.update(live)
            return not left

        self.wait_for(all_ended, 40, "the end of all jobs")
        return list(cancelled.values())

    def set_node(self, node: str, state: str, reason: str = "test") -> None:
        """As `scontrol update` does: drain, resume; down too, but while its slurmd lives the node soon comes back."""
        try:
            self.slurm("scontrol", "update", f"NodeName={node}", f"State={state}", f"Reason={reason}")
        except SandboxError:  # Slurm refuses to resume a node that has come back by itself
            if state != "resume" or self.node_states()[node].startswith(DOWN):
                raise

    def node_states(self) -> dict[str, str]:
        lines = self.slurm("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %t").splitlines()
        return {node: state for node, state in map(str.split, lines)}

    def all_idle(self) -> bool:
        return self.node_states() == dict.fromkeys(self.names, "idle")

    def start_slurmd(self, node: str) -> None:
        self._daemon("slurmd", "-N", node)

    def start_slurmctld(self) -> None:
        self._daemon("slurmctld")

    def kill_slurmctld(self) -> None:
        """No program of Slurm gets an answer any more; what runs goes on."""
        end(self._processes("slurmctld"))

    def kill_slurmd(self, node: str) -> None:
        """Kill it and all that it runs, as when a node loses its power."""
        end([*self._processes("slurmd", "slurmstepd", node=node), *self._job_processes(node)])

    def stop_controller(self) -> None:
        """As when it fails and no other takes over: running jobs go on."""
        end(self._processes("slurmctld"), patience_s=10)

    def start_controller(self, **settings: str | int) -> None:
        """Start it again, with other values of these keys of slurm.conf."""
        lines = self._shipped_config().splitlines(keepends=True)
        kept = [line for line in lines if line.partition("=")[0] not in settings]
        changed = [f"{key}={value}\n" for key, value in settings.items()]
        (self.folder / "etc" / "slurm.conf").write_text("".join([*changed, *kept]))
        self._daemon("slurmctld")
        self.wait_for(self.answers, 30, "an answer of slurmctld")

    def answers(self) -> bool:
        with contextlib.suppress(SandboxError, subprocess.SubprocessError):
            return bool(self.slurm("sinfo", "-h"))
        return False

    def set_partition(self, partition: str, **values: str | int) -> None:
        """As `scontrol update` does: State=INACTIVE, MaxTime=1."""
        words = [f"{key}={value}" for key, value in values.items()]
        self.slurm("scontrol", "update", f"PartitionName={partition}", *words)

    def pause_controller(self) -> None:
        """It answers no more, and takes later what is asked of it meanwhile."""
        for controller in self._processes("slurmctld"):
            controller.suspend()

    def heal_controller(self) -> None:
        """Have it at work as it was started first, with its partition open."""
        for controller in self._processes("slurmctld"):
            controller.resume()
        is_shipped = (self.folder / "etc" / "slurm.conf").read_text() == self._shipped_config()
        if not is_shipped or not self._processes("slurmctld"):
            self.stop_controller()
            self.start_controller()
        self.set_partition("gpu", State="UP", MaxTime="INFINITE")

    def heal(self) -> None:
        """All nodes idle again, whatever was done to them."""
        if not self._processes("slurmctld"):
            self.start_slurmctld()
        for node, state in self.node_states().items():
            if not self._processes("slurmd", node=node):
                self.start_slurmd(node)
            if state.startswith(DOWN):
                self.set_node(node, "resume")
        self.wait_for(self.all_idle, 30, "all nodes idle")

    def wait_for(self, predicate: Callable[[], Result], timeout_s: float, what: str = "a condition") -> Result:
        """What the predicate returns, once that is true."""
        deadline = time.monotonic() + timeout_s
        while not (result := predicate()):
            if time.monotonic() > deadline:
                raise SandboxError(f"waited {timeout_s} s for {what}\n{self._report()}")
            time.sleep(0.1)
        return result

    def _write_folder(self, port: int) -> None:
        by_node = [f"{kind}/{node}" for kind in ("log", "spool") for node in self.names]
        for name in ("etc", "state", "dev", *by_node):
            (self.folder / name).mkdir(parents=True)
        for gpu in range(self.gpus):  # Slurm wants character devices
            (self.folder / "dev" / f"nvidia{gpu}").symlink_to("/dev/null")
        values = {
            **asdict(self),
            "host": socket.gethostname().split(".")[0],
            "port": port,
            "first_port": port + 1,
            "last_port": port + self.nodes,
            "last_gpu": self.gpus - 1,
        }
        for name in CONFIG_FILES:
            template = Template((TEMPLATES / name).read_text())
            (self.folder / "etc" / name).write_text(template.substitute(values))
        shutil.copy(self.folder / "etc" / "slurm.conf", self.folder / "slurm.conf.shipped")
        self._save()

    def _shipped_config(self) -> str:
        return (self.folder / "slurm.conf.shipped").read_text()

    def _save(self) -> None:
        (self.folder / STATE).write_text(json.dumps({**asdict(self), "folder": str(self.folder)}))

    def _report(self) -> str:
        """What one wants to see when something did not happen."""
        logs = sorted(self.folder.glob("log/**/*.log"))
        parts = [f"== {log}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:]) for log in logs]
        with contextlib.suppress(SandboxError, subprocess.SubprocessError):
            parts += [str(self.node_states()), *map(str, self.jobs())]
        return "\n".join(parts)

    def slurm(self, *command: str) -> str:
        """Ask our slurmctld, also when /etc/slurm leads to another one."""
        environment = {**os.environ, "SLURM_CONF": f"{self.folder}/etc/slurm.conf"}
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
        )
        if done.returncode != 0:
            raise SandboxError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def _daemon(self, *command: str) -> None:
        """Start it with nothing of ours open, or whoever reads our output would wait for its end."""
        null = subprocess.DEVNULL
        done = subprocess.run(command, stdin=null, stdout=null, stderr=null, timeout=30)
        if done.returncode != 0:
            raise SandboxError(f"{' '.join(command)} ended with {done.returncode}\n{self._report()}")

    def _processes(self, *names: str, node: str = "") -> list[psutil.Process]:
        """Its daemons, by where they work. Unlike a pid file, that cannot come to mean another process."""
        place = self.folder / "log" / node
        return processes_that(lambda process: process.name() in names and Path(process.cwd()).is_relative_to(place))

    def _job_processes(self, node: str = "") -> list[psutil.Process]:
        def ours(process: psutil.Process) -> bool:
            variables = process.environ()
            here = node in ("", variables.get("SLURMD_NODENAME"))
            return here and variables.get("SLURM_CLUSTER_NAME") == self.cluster

        return processes_that(ours)


def clear_etc() -> None:
    """Take away a sandbox whose owner was killed; refuse when /etc/slurm holds anything else."""
    if reason := other_slurm():
        raise SandboxError(reason)
    folder = sandbox_in_etc()
    if folder and (folder / STATE).exists():
        left = Sandbox.load(folder)
        if left.owned:
            raise SandboxError(f"process {left.owner[0]} has a sandbox in {folder}: end that one first")
        left.stop()
    for name in (*CONFIG_FILES, MARKER):
        (ETC / name).unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--install", action="store_true", help="install Slurm unless it is there")
    action.add_argument("--up", type=Path, metavar="DIR", help="start a sandbox in a new folder")
    action.add_argument("--down", type=Path, metavar="DIR", help="stop the sandbox in a folder")
    arguments = parser.parse_args()
    try:
        if arguments.down:
            Sandbox.load(arguments.down).stop()
        elif reason := install_slurm():
            raise SandboxError(reason)
        elif arguments.up:
            # For the shell that called: once that is gone, a test run may end it.
            Sandbox.start(arguments.up, owner=os.getppid())
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
