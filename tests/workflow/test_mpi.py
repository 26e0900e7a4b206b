"""Ranks under MPI: mpiexec starts them, and they end as all others do."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from contracts.cores import available_cores
from project import ROOT, Project, wait_until
from reporting.absent_results import REASON_CHARACTERS, shortened
from test_failures import assert_nothing_left

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# What a shell in a Slurm session has, within it an MPI job whose descriptor is long closed, within it torchrun.
SESSIONS = {
    **{"SLURM_JOB_ID": "4711", "SLURM_JOBID": "4711", "SLURM_NNODES": "2", "SLURM_JOB_NUM_NODES": "2"},
    **{"SLURM_NODELIST": "n[1-2]", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)"},
    **{"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"},
    **{"PMI_FD": "777", "PMI_RANK": "5", "PMI_SIZE": "6", "MPI_LOCALRANKID": "1", "HYDRA_BOOTSTRAP": "slurm"},
    **{"OMPI_COMM_WORLD_RANK": "5", "TORCHELASTIC_USE_AGENT_STORE": "True", "RANK": "5", "WORLD_SIZE": "6"},
}
TWO = {"main": {"scaling": "strong", "cross": {"models": ["tiny"], "num_gpus": [2]}}}


@pytest.fixture
def mpi_project(fresh_project: Project, axonn_paper_python: str) -> Project:
    for name in ("nothing", "nothing_mpi"):
        file = ROOT / "tests" / "data" / f"{name}.py"
        (fresh_project.root / "scripts" / "frameworks" / file.name).write_text(file.read_text())
    (fresh_project.root / "envs" / "nothing.txt").write_text("numpy==2.4.6\n")
    use_python(fresh_project, axonn_paper_python)
    fresh_project.write_study(frameworks={"nothing_mpi": None}, comparisons=TWO)
    return fresh_project


def use_python(project: Project, python: str, **variables: str) -> None:
    """Take `python` for the environment of the MPI frameworks, with these variables in every process."""
    system = {"description": "tests", "device": "cpu", "gpus_per_node": "auto", "cpu_processes": 4}
    system |= {"environments": {"axonn_paper": {"kind": "python", "python": python}}, "environment": variables}
    project.write_yaml("config/systems/local.yaml", system)


def enter_sessions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have this shell be in a Slurm session and in an MPI job; the file that is returned holds how srun was called."""
    calls = folder / "srun-calls.txt"
    srun = folder / "srun" / "srun"
    srun.parent.mkdir()
    srun.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexit 1\n')
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}{os.pathsep}{os.environ['PATH']}")
    for name, value in SESSIONS.items():
        monkeypatch.setenv(name, value)
    return calls


def test_mpiexec_starts_the_ranks_and_a_killed_one_ends_them_all(
    mpi_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snakemake = mpi_project.start("tiny")
    wait_until(lambda: len(mpi_project.ranks()) == 2 and mpi_project.started_ranks() == 2, "both ranks", 120)
    os.kill(mpi_project.ranks()[1].pid, signal.SIGKILL)
    assert snakemake.wait(timeout=60) != 0
    assert_nothing_left(mpi_project)
    failure = mpi_project.failure("nothing_mpi", 2)
    assert failure["kind"] == "killed"
    assert failure["reason"] == "rank 1 was ended by SIGKILL"
    # mpiexec called srun, and the ranks waited out the start-up limit; without Slurm they took PMI_FD for their own.
    srun_calls = enter_sessions(tmp_path, monkeypatch)
    again = mpi_project.snakemake("tiny")
    assert again.returncode == 0, again.output
    assert not srun_calls.exists()
    record = json.loads(mpi_project.record("nothing_mpi", 2).read_text())
    assert record["status"] == "ok"
    assert [rank["local_rank"] for rank in record["ranks"]] == [0, 1]
    assert len(record["launch"]["hosts"]) == 1
    # Each is a part of its own, and has the threads that the cell names and all cores, as other frameworks' ranks do.
    threads, cores = max(1, available_cores() // 4), available_cores()
    assert record["identity"]["threads_per_process"] == record["launch"]["threads_per_process"] == threads
    for rank in record["ranks"]:
        assert rank["process"]["threads"] == threads
        assert rank["process"]["affinity_cores"] == len(os.sched_getaffinity(0)) >= cores
        assert rank["process"]["variables"].items() >= record["launch"]["environment"].items()
        assert rank["process"]["variables_of_framework"] == {}
    # The sum over both ranks' batches, so that MPI has joined them.
    assert len({rank["losses"][0] for rank in record["ranks"]}) == 1
    assert_nothing_left(mpi_project)


CRASHES_CLOSING = '''"""Test double: `nothing_mpi` whose rank 1 is ended by its library when everything is measured."""

import os
import signal

from frameworks import nothing_mpi

FRAMEWORK, unsupported_reason = nothing_mpi.FRAMEWORK, nothing_mpi.unsupported_reason


def create_engine(job):
    engine = nothing_mpi.create_engine(job)
    engine.barrier = engine._communicator.Barrier
    if job.rank == 1:
        engine.close = lambda: os.kill(os.getpid(), signal.SIGSEGV)
    return engine
'''


def test_a_rank_that_crashes_after_all_results_are_there_costs_nothing(mpi_project: Project) -> None:
    (mpi_project.root / "scripts/frameworks/crashes_closing.py").write_text(CRASHES_CLOSING)
    mpi_project.write_study(frameworks={"crashes_closing": None}, comparisons=TWO)
    run = mpi_project.snakemake("tiny")
    assert run.returncode == 0, run.output
    record = mpi_project.record("crashes_closing", 2)
    assert json.loads(record.read_text())["status"] == "ok"
    assert (
        "[launcher] rank 1 was ended by SIGSEGV after it had left its result" in (record.parent / "log.txt").read_text()
    )
    assert_nothing_left(mpi_project)


def test_a_killed_launcher_takes_mpiexec_and_the_ranks_with_it(mpi_project: Project) -> None:
    snakemake = mpi_project.start("tiny")
    wait_until(lambda: len(mpi_project.ranks()) == 2 and mpi_project.started_ranks() == 2, "both ranks", 120)
    for process in mpi_project.processes():
        with contextlib.suppress(psutil.Error):
            if "scripts/launch.py" in process.cmdline():
                process.send_signal(signal.SIGKILL)
    wait_until(lambda: not mpi_project.ranks(), "the ranks' end", 20)
    assert snakemake.wait(timeout=60) != 0
    wait_until(lambda: not mpi_project.processes(), "the end of all", 20)


def reasons(project: Project) -> dict[str, str]:
    """Return framework -> reason, of a study whose cells are all not available; its table shows how each begins."""
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    rows = project.measurements()
    assert {row["status"] for row in rows} == {"not_available"}
    table = project.table("strong_scaling")
    shown = [shortened(row["reason"], REASON_CHARACTERS) for row in rows]
    assert all(f"not available: {reason}" in table for reason in shown)
    return {row["framework"]: row["reason"] for row in rows}


def test_packages_that_are_not_there_are_told_with_what_to_install(mpi_project: Project) -> None:
    use_python(mpi_project, sys.executable)  # the workflow's own, which has none of them
    mpi_project.write_study(frameworks=dict.fromkeys(["nothing_mpi", "deepspeed", "megatron_lm"]), comparisons=TWO)
    told = reasons(mpi_project)
    assert "no mpiexec beside the Python of the environment axonn_paper" in told["nothing_mpi"]
    assert "pip install mpich" in told["nothing_mpi"]
    for framework in ("deepspeed", "megatron_lm"):
        assert "pip install -r envs/axonn_paper.txt" in told[framework]


def test_a_wrong_version_and_a_lost_mpi_library_are_told(mpi_project: Project, axonn_paper_python: str) -> None:
    use_python(mpi_project, axonn_paper_python, MPI4PY_LIBMPI="/nowhere/libmpi.so")
    mpi_project.edit("envs/axonn_paper.txt", "deepspeed==0.19.8", "deepspeed==0.1.0")
    mpi_project.write_study(frameworks=dict.fromkeys(["axonn", "deepspeed"]), comparisons=TWO)
    told = reasons(mpi_project)
    assert "mpi4py cannot load it" in told["axonn"] and "pip install mpi4py mpich" in told["axonn"]
    assert "deepspeed 0.19.8 is installed and envs/axonn_paper.txt says deepspeed==0.1.0" in told["deepspeed"]
