"""The machine that is measured, as its file in config/systems/ describes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contracts.cores import available_cores
from contracts.devices import Device
from settings.gpus import visible_gpus

# Its packages are among those of the workflow itself.
WORKFLOW_ENVIRONMENT = "torch"


EXTRA_OPTION = re.compile(r"--?[A-Za-z][A-Za-z-]*(=[\w.,:/@%+\[\]-]+)?")
# Options of sbatch that come from the other keys, from the cell, or from Snakemake's Slurm plugin.
OWN_OPTIONS = frozenset(
    {"--account", "--partition", "--qos", "--reservation", "--constraint", "--gres", "--gpus", "--gpus-per-node"}
    | {"--gpus-per-task", "--nodes", "--ntasks", "--ntasks-per-node", "--ntasks-per-gpu", "--cpus-per-task"}
    | {"--cpus-per-gpu", "--mem", "--mem-per-cpu", "--mem-per-gpu", "--time", "--exclusive", "--array", "--comment"}
    | {"--job-name", "--output", "--error", "--export", "--chdir", "--parsable", "--wrap", "--requeue", "--no-requeue"}
)


@dataclass(frozen=True)
class SlurmSite:
    """How cells become Slurm jobs on a system: the keys of `slurm` in its file, under the same names."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    gpu_request: str = "gres"  # or "gpus_per_node", "none"
    gpu_type: str | None = None
    mpi: str = "pmi2"
    cpus_per_gpu: int = 1
    memory_per_gpu_gib: float | None = None
    exclusive: bool = True
    job_overhead_minutes: float = 5.0
    tokenize: str = "login"  # or "job"
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class EnvironmentSource:
    """Where the Python of one of envs/<name>.txt comes from on a system (see `environments` in its file)."""

    kind: str  # "workflow", "venv", "conda", "apptainer" or "python"
    python: str = "python3"
    setup: tuple[str, ...] = ()
    image: str = ""
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class System:
    """A system file with every `auto` resolved. Memory in GiB, times in seconds."""

    name: str
    device: Device
    devices: tuple[str, ...]  # names in config/hardware.yaml; empty on a CPU, where the peak is measured
    gpus_per_node: int
    max_gpus: int
    threads_per_process: int | None = None  # on a CPU; None: a node's cores are divided among its processes
    threads_derived: str = ""  # from what, where the system file says `equal`: "4 cores of this call / 2 cpu_processes"
    memory_limit_gib: float | None = None
    startup_timeout_s: float = 300.0
    environment: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    environments: Mapping[str, EnvironmentSource] = field(default_factory=dict)
    slurm: SlurmSite | None = None  # None: the cells run on this machine

    def __post_init__(self) -> None:
        # Files hold its text.
        object.__setattr__(self, "device", Device(self.device))

    def environment_source(self, name: str) -> EnvironmentSource:
        """Where the environment `name` comes from when the system's file does not say."""
        default = EnvironmentSource("workflow" if name == WORKFLOW_ENVIRONMENT else "venv")
        return self.environments.get(name, default)


def system_from_config(name: str, config: Mapping[str, Any], found: tuple[str, ...] | None = None) -> System:
    """Resolve a validated system file; ValueError where it cannot be.

    `found` are the GPU names of this machine, asked of the driver by default.
    """
    device = config["device"]
    if config["num_nodes"] > 1 and "slurm" not in config:
        raise ValueError("num_nodes is above 1, and without the key `slurm` cells run on this machine alone; add it")
    if "slurm" in config and (device == "auto" or (device == Device.CUDA and config["gpus_per_node"] == "auto")):
        raise ValueError(
            "`auto` asks this machine's driver, and with `slurm` the cells run elsewhere; give device and gpus_per_node"
        )
    if device == Device.CUDA and "slurm" in config and not config["devices"]:
        raise ValueError("devices is empty; name the nodes' GPU as in config/hardware.yaml")
    ask = device == "auto" or (device == Device.CUDA and config["gpus_per_node"] == "auto")
    gpus = (visible_gpus() if found is None else found) if ask else ()
    if device == "auto":
        device = Device.CUDA if gpus else Device.CPU
    if device == Device.CUDA and ask and not gpus:
        raise ValueError("gpus_per_node is `auto`, but the driver shows no GPU on this machine; give their number")
    if device == Device.CPU:
        per_node = config["cpu_processes"] if config["gpus_per_node"] == "auto" else config["gpus_per_node"]
        devices: tuple[str, ...] = ()
    else:
        per_node = len(gpus) if config["gpus_per_node"] == "auto" else config["gpus_per_node"]
        devices = tuple(config["devices"]) or tuple(dict.fromkeys(gpus))
    threads, derived = _threads_per_process(config, device, per_node)
    return System(
        name=name,
        device=device,
        devices=devices,
        gpus_per_node=per_node,
        max_gpus=per_node * config["num_nodes"],
        threads_per_process=threads,
        threads_derived=derived,
        memory_limit_gib=config["memory_limit_gib"],
        startup_timeout_s=config["startup_timeout_s"],
        environment=dict(config["environment"]),
        setup=tuple(config["setup"]),
        environments={name: _environment_source(name, entry) for name, entry in config["environments"].items()},
        slurm=_slurm_site(config["slurm"]) if "slurm" in config else None,
    )


def _threads_per_process(config: Mapping[str, Any], device: str, processes_per_node: int) -> tuple[int | None, str]:
    """Return the threads of every CPU process, None where a node's cores are divided among the processes of a cell; and
    from what they were derived, empty where the file gives them.

    `equal` is a share that stays the same whatever the number of processes, so that more processes are more hardware.
    """
    given = config["threads_per_process"]
    if device == Device.CUDA:
        if config["device"] == Device.CUDA and isinstance(given, int):
            raise ValueError("threads_per_process is for CPU processes, which stand for GPUs; remove it")
        return None, ""
    if given == "shared":
        return None, ""
    if given != "equal":
        return given, ""
    if "slurm" in config:
        return config["slurm"]["cpus_per_gpu"], "slurm.cpus_per_gpu"
    cores = available_cores()
    key = "cpu_processes" if config["gpus_per_node"] == "auto" else "gpus_per_node"
    return max(1, cores // processes_per_node), f"{cores} cores of this call / {processes_per_node} {key}"


def _slurm_site(config: Mapping[str, Any]) -> SlurmSite:
    site = SlurmSite(**{**config, "extra": tuple(config["extra"])})
    for option in site.extra:
        name = option.partition("=")[0]
        if not EXTRA_OPTION.fullmatch(option):
            raise ValueError(
                f"slurm.extra: {option!r} is no single option, such as --exclude=n7, without spaces or quotes"
            )
        if name in OWN_OPTIONS or not name.startswith("--"):
            raise ValueError(
                f"slurm.extra: {name} is set from the other keys and the cell; only further --options go here"
            )
    for key, value in (("extra", " ".join(site.extra)), ("reservation", site.reservation)):
        if "-J" in (value or ""):
            raise ValueError(
                f"slurm.{key}: {value!r} holds `-J`, which Snakemake's Slurm plugin takes for an option of its own and "
                f"refuses; give it by the variable that sbatch reads (export SBATCH_RESERVATION=..., for example)"
            )
    if site.gpu_request == "gres" and "-" in (site.gpu_type or ""):
        raise ValueError(
            f"slurm.gpu_type: {site.gpu_type!r} has a `-`, which Snakemake's Slurm plugin refuses in a request "
            f"by gres; use gpu_request gpus_per_node"
        )
    if site.gpu_request == "none" and site.gpu_type:
        raise ValueError("slurm.gpu_type is given, but with gpu_request `none` no GPU is asked for; remove one of them")
    if site.gpu_request == "none" and not site.exclusive:
        raise ValueError(
            "slurm.exclusive is false with gpu_request `none`: jobs would share GPUs unknowingly; remove one of them"
        )
    return site


def _environment_source(name: str, config: Mapping[str, Any]) -> EnvironmentSource:
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in config.items()}
    source = EnvironmentSource(**given)
    if (source.kind == "apptainer") != bool(source.image):
        raise ValueError(f"environments.{name}: `image` goes with kind `apptainer`, and only with it")
    if source.kind in ("workflow", "venv", "conda") and "python" in given:
        raise ValueError(f"environments.{name}.python: kind `{source.kind}` brings its own interpreter; remove the key")
    return source
