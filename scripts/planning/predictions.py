"""What is known of a study's cells before any of them starts: whether they fit a GPU, and what stands in their way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import metadata
from types import ModuleType
from typing import Any

from contracts.errors import ConfigError
from planning.adaptors import load_adaptor
from planning.memory_estimate import MemoryEstimate, estimate_for
from planning.plan import Study
from settings.hardware import device_table
from workloads.training.training_cell import TrainingCell

# The lowest compute capability that PyTorch's builds of a release have kernels for, by the release and by what its
# version has behind a +; the package index's own has nothing there, and is that for CUDA 13. Source: "PyTorch CUDA
# Support Matrix" in RELEASE.md of github.com/pytorch/pytorch (the lists for 2.11, 2.12 and, in issue 190355, 2.14 are
# the same): CUDA 13 from Turing (7.5) on, CUDA 12.6 from Maxwell (5.0) on, for x86.
LOWEST_CAPABILITY: Mapping[str, Mapping[str, float]] = {"2.13": {"": 7.5, "cu130": 7.5, "cu126": 5.0}}
OLDER_GPUS_NEED = "CUDA 12.6"


def cell_estimate(adaptor: ModuleType, cell: TrainingCell) -> MemoryEstimate | None:
    """Return the memory that a cell needs, with what its adaptor declares. ConfigError where that fails."""
    try:
        return estimate_for(adaptor, cell)
    except Exception as error:
        raise ConfigError(
            f"scripts/frameworks/{cell.framework}.py: stored_state failed for {cell.label()}: "
            f"{type(error).__name__}: {error}"
        ) from error


def cells_too_large_for(memory_gib: float | None, cells: Iterable[TrainingCell]) -> set[str]:
    """Return the ids of the cells that are predicted not to fit a GPU; none where its memory is not known."""
    if memory_gib is None:
        return set()
    unique = {cell.cell_id: cell for cell in cells}
    adaptors = {name: load_adaptor(name) for name in {cell.framework for cell in unique.values()}}
    estimates = {cell_id: cell_estimate(adaptors[cell.framework], cell) for cell_id, cell in unique.items()}
    return {cell_id for cell_id, estimate in estimates.items() if estimate and not estimate.fits(memory_gib)}


def straddles_nodes(cell: TrainingCell) -> bool:
    """Whether a tensor group of the cell has ranks on two nodes. Its ranks are neighbours in every framework here, and
    nodes take consecutive ranks, as even as can be, the fuller ones first.
    """
    if cell.layout.tensor_parallel == 1:
        return False
    least, fuller = divmod(cell.num_gpus, cell.num_nodes)
    first_ranks = (node * least + min(node, fuller) for node in range(1, cell.num_nodes))
    return any(first % cell.layout.tensor_parallel for first in first_ranks)


def missing_kernels(study: Study, hardware: Mapping[str, Any], installed: str | None = None) -> list[str]:
    """Return a sentence for every version of torch that has no kernels for the system's GPUs, if that is known.

    installed: the version of the workflow's own torch, by default what its package says; torch is not imported.
    """
    system = study.system
    key = device_table(hardware).get(system.devices[0]) if system.devices else None
    capability = hardware[key].get("compute_capability") if key is not None else None
    if capability is None:
        return []
    frameworks_without: dict[tuple[str, float], list[str]] = {}
    for framework, pinned in pinned_torch(study).items():
        kind = system.environment_source(study.environments[framework]).kind
        version = (installed or _installed_torch()) if kind == "workflow" else pinned
        lowest = lowest_capability(pinned, version) if kind in ("workflow", "venv", "conda") else None
        if lowest is not None and capability < lowest:
            frameworks_without.setdefault((pinned, lowest), []).append(framework)
    return [
        f"{key} has compute capability {capability:.1f}, and torch {pinned} as the package index has it starts at "
        f"{lowest:.1f}: with it no cell of {', '.join(frameworks)} can run. A build for {OLDER_GPUS_NEED} would have "
        f"kernels for older GPUs; `environments` in config/systems/{system.name}.yaml can name a Python that has one"
        for (pinned, lowest), frameworks in frameworks_without.items()
    ]


def pinned_torch(study: Study) -> dict[str, str]:
    """Return the version of torch that each framework's environment asks for, where it is one of them."""
    environments = {planned.cell.framework: planned.cell.environment for planned in study.planned}
    return {
        framework: line.partition("==")[2]
        for framework, environment in environments.items()
        for line in environment.get("requirements", ())
        if line.startswith("torch==")
    }


def lowest_capability(pinned: str, installed: str | None) -> float | None:
    """Return where the build starts that a cell runs with: the installed one if it is of the pinned version and for
    CUDA, else the package index's. None where the table does not know.
    """
    version, _, build = (installed or pinned).partition("+")
    if version != pinned or build == "cpu":
        build = ""  # of another machine than the one that plans
    release = ".".join(pinned.split(".")[:2])
    return LOWEST_CAPABILITY.get(release, {}).get(build)


def _installed_torch() -> str | None:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
