"""What a shell leaves behind never reaches a rank: another process's place, and settings that change the speed."""

from __future__ import annotations

import ast
import io
import math
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from contracts.inherited import MPIEXEC, rank_environment, starting_environment, tells_a_place
from contracts.placement import NODE_VARIABLE
from launcher.login_shell import dropped_settings, without_shell_settings
from launcher.part import LaunchPlan, run_part
from launcher.processes import Limits, LogWriter
from launcher.shared_settings import shared_settings
from records.code_digests import SCRIPTS

# As the starters leave them: MPICH's Hydra, Intel MPI, Open MPI, PALS, torchrun, horovodrun, JAX.
PLACES = {
    **{"PMI_FD": "7", "PMI_RANK": "1", "PMI_SIZE": "2", "PMIX_RANK": "0", "PMIX_NAMESPACE": "x", "PMI2_RANK": "1"},
    **{"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1", "HYDI_CONTROL_FD": "9", "I_MPI_HYDRA_BOOTSTRAP": "slurm"},
    **{"OMPI_COMM_WORLD_RANK": "3", "OMPI_MCA_ess_base_jobid": "1", "PRTE_LAUNCHED": "1", "PALS_RANKID": "1"},
    **{"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "4", "ROLE_RANK": "4"},
    **{"RANK": "4", "MASTER_ADDR": "elsewhere", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "8"},
    **{"HOROVOD_RANK": "1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "1", "JAX_PROCESS_ID": "1", "HYDRA_HOST_FILE": "hosts"},
}
SESSION = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-9]", "SLURM_NODELIST": "n[1-9]", "PBS_NODEFILE": "nodes"}
SETTINGS = {
    **{"NCCL_IB_HCA": "mlx5", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "PMIX_MCA_gds": "hash", "I_MPI_FABRICS": "ofi"},
    **{
        "OMPI_MCA_btl": "self",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "HOROVOD_FUSION_THRESHOLD": "1",
        "CUDA_VISIBLE_DEVICES": "",
    },
    **{"SLURMD_NODENAME": "n1", "PATH": "/bin", "PYTHONPATH": "/mine"},
}

LIMITS = Limits(30, math.inf, lambda: None, lambda rank: True, lambda rank: True, lambda rank: False, lambda: False)


@pytest.mark.parametrize("in_slurm", [False, True])
def test_no_rank_is_told_another_place(in_slurm: bool) -> None:
    assert rank_environment(PLACES | SETTINGS, in_slurm=in_slurm, mpi=False) == SETTINGS
    assert all(map(tells_a_place, PLACES)) and not any(map(tells_a_place, SETTINGS))


def test_a_local_system_is_no_part_of_a_session_around_it() -> None:
    assert rank_environment(SESSION | SETTINGS, in_slurm=False, mpi=False) == SETTINGS
    started = starting_environment(PLACES | SESSION | SETTINGS, in_slurm=False)
    assert started == SETTINGS | MPIEXEC
    assert started["HYDRA_BOOTSTRAP"] == "fork"  # not srun


def test_srun_knows_the_job_and_ranks_are_not_its_one_task() -> None:
    job = SESSION | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
    assert starting_environment(PLACES | job, in_slurm=True) == job
    assert rank_environment(PLACES | job, in_slurm=True, mpi=False) == SESSION


@pytest.mark.parametrize("in_slurm", [False, True])
def test_snakemakes_number_of_cores_is_no_number_of_threads(in_slurm: bool) -> None:
    """Each of two processes had OPENBLAS_NUM_THREADS=2 on two cores, beside the OMP_NUM_THREADS=1 that it was given."""
    cores = dict.fromkeys(
        ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "2"
    )
    assert rank_environment(cores | SETTINGS, in_slurm=in_slurm, mpi=False) == SETTINGS
    assert not cores.keys() & starting_environment(cores, in_slurm=in_slurm).keys()
    chosen = LaunchPlan(["python"], 1, 1, "127.0.0.1", "m", "t", {"OPENBLAS_NUM_THREADS": "3"}, threads=1)
    assert chosen.shares(1)[2]["OPENBLAS_NUM_THREADS"] == "3"
    assert not any(map(tells_a_place, cores))  # so a record says what the system file chose


@pytest.mark.parametrize(
    ("system", "openmp", "mkl"),
    [
        ({}, "1", "1"),
        ({"OMP_NUM_THREADS": "2"}, "2", "2"),
        ({"OMP_NUM_THREADS": "4,2"}, "4,2", "4"),
        ({"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "3"}, "2", "3"),
    ],
)
def test_mkl_has_the_threads_of_openmp(system: dict[str, str], openmp: str, mkl: str) -> None:
    """Torch takes MKL's number: with OMP_NUM_THREADS: "2" in the system file it went on with one thread."""
    settings = shared_settings(1, system)
    assert (settings["OMP_NUM_THREADS"], settings["MKL_NUM_THREADS"]) == (openmp, mkl)


def test_under_mpi_a_rank_is_told_what_its_own_starter_said() -> None:
    told = {"PMI_FD": "7", "PMI_RANK": "1", "SLURM_PROCID": "1"}
    assert rank_environment(told, in_slurm=True, mpi=True) == told


def test_a_cell_runs_in_a_shell_of_an_mpi_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It ended with 'Bad file descriptor': the descriptor that PMI_FD names is another process's."""
    for name, value in (PLACES | SESSION | {"PMI_FD": "777"}).items():
        monkeypatch.setenv(name, value)
    program = "import os; print(sorted(n for n in os.environ if n.startswith(('PMI', 'SLURM', 'GROUP_', 'MASTER_'))))"
    command = [sys.executable, "-S", "-c", program]
    job = LaunchPlan(command, 1, 1, "127.0.0.1", str(tmp_path), "token", {})
    log = io.StringIO()
    report = run_part(job, 0, LIMITS, LogWriter(log))
    assert (report.kind, report.reason) == ("", "")
    assert log.getvalue() == "[rank 0] ['MASTER_ADDR']\n"
    assert os.environ["PMI_FD"] == "777"  # only ranks go without


SHELL = {
    **{"OMP_PROC_BIND": "true", "GOMP_CPU_AFFINITY": "0", "KMP_AFFINITY": "compact", "MKL_DYNAMIC": "FALSE"},
    **{"OPENBLAS_CORETYPE": "Haswell", "MALLOC_ARENA_MAX": "1", "LD_PRELOAD": "libm.so.6", "NCCL_ALGO": "Ring"},
    **{"GLOO_SOCKET_IFNAME": "lo", "UCX_TLS": "tcp", "CUDA_LAUNCH_BLOCKING": "1", "CUDA_MPS_PIPE_DIRECTORY": "/mps"},
    **{"TORCH_NCCL_BLOCKING_WAIT": "1", "PYTORCH_CUDA_ALLOC_CONF": "x", "GLIBC_TUNABLES": "x", "NCCL_TOPO_FILE": "t"},
}
LOCATING = {
    **{"CUDA_HOME": "/cuda", "CUDA_PATH": "/cuda", "TORCH_HOME": "/me", "NCCL_ROOT": "/nccl", "CUDA_VERSION": "12.6"},
    **{"TF_CLI_CONFIG_FILE": "terraform", "TF_VAR_region": "x"},
    **{"TORCH_EXTENSIONS_DIR": "/me", "MKLROOT": "/mkl", "PATH": "/bin", "LD_LIBRARY_PATH": "/lib", "HOME": "/me"},
}
CHOICE = {"CUDA_VISIBLE_DEVICES": "2,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_settings_of_a_shell_stay_there_and_what_locates_passes() -> None:
    everything = SHELL | LOCATING | CHOICE
    assert without_shell_settings(everything, in_slurm=False) == LOCATING | CHOICE
    assert without_shell_settings(everything, in_slurm=True) == LOCATING


def test_what_was_dropped_is_named_but_not_what_the_launcher_sets_anyway() -> None:
    of_snakemake = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    shell = SHELL | LOCATING | CHOICE | PLACES | of_snakemake
    given = shared_settings(1, {"NCCL_ALGO": "Tree"})
    told = dropped_settings(given, in_slurm=True, environment=shell)
    (names,) = re.findall(r": (.*) \(", told)
    assert set(names.split(", ")) == SHELL.keys() - {"NCCL_ALGO"}
    assert dropped_settings(given, in_slurm=False, environment=LOCATING | CHOICE | of_snakemake) == ""


@pytest.mark.parametrize("chosen", [{}, {"OMP_PROC_BIND": "spread", "NCCL_ALGO": "Tree"}])
def test_a_rank_has_what_the_system_file_names_and_not_what_the_shell_set(
    chosen: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """OMP_PROC_BIND=true in a shell made a batch 1.8 times longer, and its status was ok."""
    for name, value in {**SHELL, **CHOICE}.items():
        monkeypatch.setenv(name, value)
    names = sorted({*SHELL, *CHOICE})
    program = f"import os; print({{name: os.environ[name] for name in {names} if name in os.environ}})"
    job = LaunchPlan([sys.executable, "-S", "-c", program], 1, 1, "127.0.0.1", str(tmp_path), "token", chosen)
    log = io.StringIO()
    report = run_part(job, 0, LIMITS, LogWriter(log))
    assert (report.kind, report.reason) == ("", "")
    assert ast.literal_eval(log.getvalue().removeprefix("[rank 0] ")) == CHOICE | chosen
    assert all(report.settings[name] == value for name, value in chosen.items())  # the record's launch.environment


def test_in_a_container_a_rank_knows_its_node_as_its_launcher_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The record was refused, since the rank told the container's name. The program stands in for a container."""
    for name in ("SLURMD_NODENAME", NODE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    program = "import socket; socket.gethostname = lambda: 'container-7f3a'; from contracts.placement import *; "
    command = [sys.executable, "-c", f"{program} print(host_name(), node_of_rank())"]
    job = LaunchPlan(command, 1, 1, "127.0.0.1", str(tmp_path), "token", {"PYTHONPATH": str(SCRIPTS)})
    log = io.StringIO()
    report = run_part(job, 0, LIMITS, LogWriter(log))
    assert log.getvalue() == f"[rank 0] container-7f3a {report.host}\n"
    assert report.host == socket.gethostname()
