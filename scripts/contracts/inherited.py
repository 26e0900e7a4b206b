"""Variables of the shell that would tell a rank that it is part of something else, and that no rank may inherit.

Whoever starts processes tells them through the environment which of them they are and where the others are. A shell
inside an MPI job, a torchrun process or a Slurm session hands that on to all that is started from it. Here are the
families of such variables. Settings of the same libraries (how to send, how to bind) are no place: those of a shell are
kept from ranks by launcher/login_shell.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """Variables that one kind of starter leaves. kept: what begins so is a setting and no place."""

    reason: str
    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def holds(self, name: str) -> bool:
        return name in self.names or (name.startswith(self.prefixes) and not name.startswith(self.kept))


MPI = (
    Family(
        "MPICH, Intel MPI, MVAPICH and Slurm's PMI: rank, size, and a descriptor that is closed here ('Bad file "
        "descriptor')",
        names=("MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MPICH_INTERFACE_HOSTNAME", "HYDI_CONTROL_FD", "MPIRUN_RANK"),
        prefixes=("PMI_", "PMI2_", "PMIX_", "MV2_COMM_WORLD_", "MPISPAWN_", "I_MPI_HYDRA_", "I_MPI_INFO_"),
        kept=("PMIX_MCA_", "PMI_MMAP_", "PMI_MAX_", "PMI_NO_"),
    ),
    Family(
        "Open MPI: place and address of its daemon",
        names=("OMPI_FIRST_RANKS", "OMPI_NUM_APP_CTX", "OMPI_UNIVERSE_SIZE", "OMPI_FILE_LOCATION", "OMPI_COMMAND"),
        prefixes=("OMPI_COMM_WORLD_", "OMPI_APP_CTX_", "OMPI_MCA_ess_", "OMPI_MCA_orte_", "PRTE_"),
        kept=("PRTE_MCA_", "PRTE_ALLOW_"),
    ),
    Family(
        "launchers of Cray, IBM and Flux: place of a process",
        names=("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_KVS_NAMESPACE"),
        prefixes=("PALS_", "ALPS_", "JSM_"),
    ),
    Family(
        "how an earlier mpiexec was to start its processes, and where",
        prefixes=("HYDRA_",),
    ),
)
FRAMEWORKS = (
    Family(
        "torchrun and torch.distributed's own variables: another group's place and address",
        names=(
            *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK"),
            *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
            *("LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"),  # DeepSpeed's launcher
        ),
        prefixes=("TORCHELASTIC_",),
    ),
    Family(
        "horovodrun: place of a process and address of its rendezvous",
        names=(
            *("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK"),
            *("HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_ELASTIC", "HOROVOD_RENDEZVOUS_PORT"),
        ),
        prefixes=("HOROVOD_GLOO_RENDEZVOUS_",),
    ),
    Family(
        "JAX and TensorFlow: who is in the cluster",
        names=("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "TF_CONFIG"),
    ),
    Family(
        "another launch of this project",
        prefixes=("SCALING_EVAL_MEETING_", "SCALING_EVAL_LAUNCH_"),
    ),
)
# These are removed on a system without Slurm: its cells run on this machine even inside an allocation, where mpiexec
# would otherwise call srun or start on other nodes. SLURMD_NODENAME stays, since it is the machine's name.
SCHEDULERS = (
    Family("a Slurm session", prefixes=("SLURM_",), kept=("SLURM_CONF",)),
    Family("PBS", names=("PBS_NODEFILE", "PBS_ENVIRONMENT", "PBS_JOBID")),
    Family("LSF", names=("LSB_HOSTS", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE", "LSB_DJOB_RANKFILE", "LSB_JOBID")),
    Family("Grid Engine, Cobalt, LoadLeveler", names=("PE_HOSTFILE", "COBALT_NODEFILE", "LOADL_HOSTFILE")),
)
# Snakemake tells every job the number of its cores, which is no share of a process: OpenBLAS (torch's library on Arm)
# would take it for more than what the launcher gives, and rows measured with other `--cores` would not be alike. All
# of these follow OMP_NUM_THREADS where they are not set. A system file may set them.
SNAKEMAKE = (
    Family(
        "threads of a job of Snakemake's",
        names=("GOTO_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS"),
    ),
)
# In a Slurm job the step that starts a node's ranks is one task: all ranks would take themselves for it.
SLURM_TASK = (
    Family(
        "the one task of a node's step",
        names=(
            *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID"),
            *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
            *("SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
        ),
    ),
)

# mpiexec gets these on this machine: it starts the processes itself and binds none, so that the processes of all
# frameworks have the same cores. Each MPI reads its own variables and ignores the others'.
MPIEXEC = {
    "HYDRA_BOOTSTRAP": "fork",
    "HYDRA_LAUNCHER": "fork",
    "HYDRA_BINDING": "none",
    "I_MPI_HYDRA_BOOTSTRAP": "fork",
    "I_MPI_PIN": "0",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}


def without(environment: Mapping[str, str], families: Iterable[Family]) -> dict[str, str]:
    """Return `environment` without the variables of these families."""
    families = tuple(families)
    return {name: value for name, value in environment.items() if not any(family.holds(name) for family in families)}


def tells_a_place(name: str) -> bool:
    """Return whether a variable says which process this is, or where others are."""
    return any(family.holds(name) for family in (*MPI, *FRAMEWORKS, *SCHEDULERS))


def starting_environment(environment: Mapping[str, str], *, in_slurm: bool) -> dict[str, str]:
    """Return the environment in which srun or mpiexec starts: of what was inherited, none tells it a place.

    In a Slurm job, srun needs to know the job.
    """
    if in_slurm:
        return without(environment, (*MPI, *FRAMEWORKS, *SNAKEMAKE))
    return without(environment, (*MPI, *FRAMEWORKS, *SNAKEMAKE, *SCHEDULERS)) | MPIEXEC


def rank_environment(environment: Mapping[str, str], *, in_slurm: bool, mpi: bool) -> dict[str, str]:
    """Return what of the environment of a part its ranks inherit.

    Under MPI the part was started, from `starting_environment`, to be the rank: what it was told is the rank's.
    """
    if mpi:
        return dict(environment)
    return without(environment, (*MPI, *FRAMEWORKS, *SNAKEMAKE, *(SLURM_TASK if in_slurm else SCHEDULERS)))
