"""The sandbox itself: what other tests here expect of its Slurm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import machine
from machine import ETC, SandboxError, install_slurm
from sandbox import Job, Sandbox

Submit = Callable[..., str]


@pytest.fixture
def submit(tmp_path: Path) -> Submit:
    def submit(script: str, *options: str) -> str:
        """The new job's number."""
        return run("sbatch", "--parsable", *options, "--wrap", script, cwd=tmp_path).strip()

    return submit


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


def job(sandbox: Sandbox, job_id: str) -> Job:
    return next(job for job in sandbox.jobs() if job.job_id == job_id)


def wait_for_state(sandbox: Sandbox, job_id: str, state: str, timeout_s: float = 20) -> Job:
    sandbox.wait_for(lambda: job(sandbox, job_id).state == state, timeout_s, f"job {job_id} to be {state}")
    return job(sandbox, job_id)


def test_nodes_are_idle_with_their_gpus(sandbox: Sandbox) -> None:
    assert sandbox.node_states() == {"n1": "idle", "n2": "idle", "n3": "idle"}
    assert run("sinfo", "-h", "-p", "gpu", "-o", "%D %c %m %G").strip() == "3 8 7000 gpu:h100:4"


def test_a_step_on_two_nodes(sandbox: Sandbox) -> None:
    script = "echo $SLURM_NODEID $SLURM_GPUS_ON_NODE"
    output = run("srun", "-N2", "--ntasks-per-node=1", "--gres=gpu:2", "bash", "-c", script)
    assert sorted(output.splitlines()) == ["0 2", "1 2"]


def test_a_plain_job(sandbox: Sandbox, submit: Submit, tmp_path: Path) -> None:
    comment = "a|comment, with 'all' {sorts}; of signs"
    job_id = submit("true", "--comment", comment)
    done = wait_for_state(sandbox, job_id, "COMPLETED", 5)
    assert done == Job(job_id, "COMPLETED", "None", "n1", comment, str(tmp_path))


def test_a_node_set_down_and_resumed(sandbox: Sandbox, submit: Submit) -> None:
    job_id = submit("sleep 100", "--nodelist=n2", "--no-requeue")
    wait_for_state(sandbox, job_id, "RUNNING")
    sandbox.set_node("n2", "down", "a test")
    wait_for_state(sandbox, job_id, "NODE_FAIL")
    sandbox.set_node("n2", "drain", "a test")
    assert sandbox.node_states()["n2"] == "drain"
    sandbox.set_node("n2", "resume")
    sandbox.wait_for(sandbox.all_idle, 10, "n2 idle again")


def test_a_node_that_falls_silent(sandbox: Sandbox, submit: Submit, tmp_path: Path) -> None:
    step = "srun --ntasks-per-node=1 bash -c 'touch running-$SLURMD_NODENAME; exec sleep 100'"
    job_id = submit(step, "--nodes=2", "--nodelist=n2,n3", "--no-requeue")
    # Not only the job: had the step yet to start on n3, srun would give up before Slurm does, and the job be FAILED.
    sandbox.wait_for(lambda: len(list(tmp_path.glob("running-*"))) == 2, 20, "a step on two nodes")
    sandbox.kill_slurmd("n3")
    wait_for_state(sandbox, job_id, "NODE_FAIL", 40)
    assert sandbox.node_states()["n3"].startswith("down")
    sandbox.start_slurmd("n3")
    sandbox.wait_for(sandbox.all_idle, 20, "n3 idle again")


def test_more_memory_than_asked_for(sandbox: Sandbox, submit: Submit, tmp_path: Path) -> None:
    hoard = "python3 -c 'import time; hoard = bytearray(200_000_000); time.sleep(30)'"
    job_id = submit(f"srun {hoard}", "--mem=50", "--output=output.txt")
    wait_for_state(sandbox, job_id, "FAILED")
    assert "exceeded memory limit" in (tmp_path / "output.txt").read_text()


def test_a_job_in_low_makes_place(sandbox: Sandbox, submit: Submit) -> None:
    low = submit("sleep 100", "--partition=low", "--nodes=3", "--gres=gpu:4", "--no-requeue")
    wait_for_state(sandbox, low, "RUNNING")
    high = submit("true", "--gres=gpu:4")
    wait_for_state(sandbox, high, "COMPLETED")
    assert wait_for_state(sandbox, low, "PREEMPTED").ended


def test_a_second_sandbox_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=f"process {os.getpid()} has a sandbox in {sandbox.folder}"):
        Sandbox.start(tmp_path)
    assert (ETC / "slurm.conf").resolve() == sandbox.folder / "etc" / "slurm.conf"


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No Slurm and no program at all, whatever this one has: its folder of programs, with the one for Slurm in it."""
    monkeypatch.setattr(machine, "ETC", tmp_path / "etc")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "etc").mkdir()
    return tmp_path


def test_a_real_slurm_stays_untouched(bare_machine: Path) -> None:
    config = bare_machine / "etc" / "slurm.conf"
    config.write_text("ClusterName=real\n")
    assert "a Slurm of its own" in (install_slurm() or "")
    with pytest.raises(SandboxError, match="a Slurm of its own"):
        Sandbox.start(bare_machine / "sandbox")
    assert sorted(bare_machine.rglob("*")) == [config.parent, config]


def test_why_there_can_be_no_sandbox(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (install_slurm() or "").endswith("there is no apt-get to install them")
    apt_get = bare_machine / "apt-get"
    apt_get.write_text("#!/bin/sh\necho Reading lists...\necho E: Unable to locate package slurm-wlm\nexit 100\n")
    apt_get.chmod(0o755)
    assert (install_slurm() or "").endswith("for the sandbox: E: Unable to locate package slurm-wlm")
    monkeypatch.setenv("SLURM_CONF", "/shared/slurm.conf")
    assert "SLURM_CONF names a Slurm that is no sandbox" in (install_slurm() or "")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in (install_slurm() or "")
