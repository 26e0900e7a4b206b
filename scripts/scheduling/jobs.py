"""Between the plan and Slurm: what the rules ask for a cell, what a call will cost, which jobs are already there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix.memory_estimate import gpu_memory_gib
from matrix.plan import PlannedCell, Study, record_path, without_record
from matrix.predictions import cells_too_large_for, straddles_nodes
from matrix.systems import System
from scheduling.queue import SlurmJob, jobs_of_cells
from scheduling.resources import cell_resources, charged_gpus, site_resources

PER_CELL = ("nodes", "tasks", "gres", "mem", "runtime", "slurm_extra")
# wikitext-103 takes about half a minute with two processes; memory is flat at about 60 MB each (benchmarks/README.md).
LOGIN_THREADS = 2
TOKENIZING_THREADS = 4
TOKENIZING_MINUTES = 60
TOKENIZING_MEMORY_MB_PER_PROCESS = 1000
CellValue = Callable[[Any, str], Any]


def training_resources(system: System, cell_value: CellValue) -> dict[str, Any]:
    """{"threads", "resources"} of the rule that trains; nothing where cells run on this machine.

    cell_value: (wildcards, key) -> a value of the cell (matrix/plan.py, index_cells).
    """
    site = system.slurm
    if site is None:
        return {"threads": None, "resources": {}}

    worked_out: dict[str, dict[str, Any]] = {}  # Snakemake asks for each key of each cell several times

    def asked(key: str) -> Callable[[Any], Any]:
        def value(wildcards: Any) -> Any:
            if wildcards.cell_id not in worked_out:
                cell, limit_s = cell_value(wildcards, "cell"), cell_value(wildcards, "time_limit_s")
                worked_out[wildcards.cell_id] = cell_resources(site, cell, limit_s)
            return worked_out[wildcards.cell_id][key]

        return value

    return {"threads": asked("threads"), "resources": site_resources(site) | {key: asked(key) for key in PER_CELL}}


def tokenizing_resources(system: System) -> dict[str, Any]:
    """{"local", "threads", "resources"} of the rule that tokenizes; threads None: all that this machine has."""
    site = system.slurm
    if site is None:
        return {"local": True, "threads": None, "resources": {}}
    if site.tokenize == "login":
        return {"local": True, "threads": LOGIN_THREADS, "resources": {}}
    asked = {key: value for key, value in site_resources(site).items() if key != "mpi"}
    memory_mb = TOKENIZING_MEMORY_MB_PER_PROCESS * TOKENIZING_THREADS
    return {
        "local": False,
        "threads": TOKENIZING_THREADS,
        "resources": {**asked, "runtime": TOKENIZING_MINUTES, "mem_mb": memory_mb},
    }


@dataclass(frozen=True)
class Budget:
    """What the missing cells of a study will take at most, that is, if every cell goes on to its time limit.

    gpu_hours, unfit_gpu_hours: GPUs that are kept from others, of all cells and of those that are predicted not to fit
        memory_gib; None on a CPU without Slurm.
    straddling: cells with tensor groups on more than one node.
    """

    submits: bool
    cells: int
    most_nodes: int
    minutes: float
    gpu_hours: float | None
    unfit: int = 0
    unfit_gpu_hours: float = 0.0
    memory_gib: float | None = None
    straddling: int = 0

    def words(self) -> str:
        """Return what a call says of it, first of all."""
        if self.gpu_hours is None:
            return (
                f"{_count(self.cells, 'cell')} to measure one after another, at most {self.minutes:,.0f} minutes in all"
            )
        most = f"at most {hours_text(self.gpu_hours)} GPU-hours in all"
        if self.submits:
            text = f"{_count(self.cells, 'job')} to submit, of at most {_count(self.most_nodes, 'node')} each, {most}"
            text += " (every GPU kept from others, to the time limit)"
        else:
            text = f"{_count(self.cells, 'cell')} to measure one after another, {most} (to the time limit)"
        if self.memory_gib is not None:
            fitting = f"{self.cells - self.unfit} predicted to fit {self.memory_gib:g} GiB"
            text += f": {fitting}, {hours_text(self.gpu_hours - self.unfit_gpu_hours)} GPU-hours; "
            text += f"{self.unfit} predicted NOT to fit"
            if self.unfit:
                text += f", {hours_text(self.unfit_gpu_hours)} GPU-hours, and started all the same"
        if self.straddling:
            text += f"; {self.straddling} with tensor groups that straddle nodes"  # named in the list of cells
        return text


def budget(
    study: Study, results: Path, in_queue: Collection[Path], hardware: Mapping[str, Any] | None = None
) -> Budget:
    """Return what the cells will take that have neither a record nor a job.

    in_queue: the records that jobs of an earlier call will write. hardware: config/hardware.yaml, for the memory of
    GPUs on a system that sets no limit of its own.
    """
    system = study.system
    missing = [p for p in without_record(study, results) if record_path(results, system.name, p) not in in_queue]
    memory_gib = gpu_memory_gib(system, hardware or {})
    too_large = cells_too_large_for(memory_gib, (planned.cell for planned in missing))
    hours = [(planned.cell, _gpu_hours(study, planned)) for planned in missing]
    has_gpu_hours = system.slurm is not None or system.device != "cpu"
    return Budget(
        submits=system.slurm is not None,
        cells=len(missing),
        most_nodes=max((planned.cell.num_nodes for planned in missing), default=0),
        minutes=sum(study.limit_minutes(planned.cell) for planned in missing),
        gpu_hours=sum(spent for _, spent in hours) if has_gpu_hours else None,
        unfit=sum(cell.cell_id in too_large for cell, _ in hours),
        unfit_gpu_hours=sum(spent for cell, spent in hours if cell.cell_id in too_large),
        memory_gib=memory_gib,
        straddling=sum(straddles_nodes(cell) for cell, _ in hours),
    )


def _gpu_hours(study: Study, planned: PlannedCell) -> float:
    """The GPUs that a cell keeps from others, times its limit: with Slurm those of its job and the job's."""
    site, cell, minutes = study.system.slurm, planned.cell, study.limit_minutes(planned.cell)
    if site is None:
        return cell.num_gpus * minutes / 60
    minutes = cell_resources(site, cell, 60 * minutes)["runtime"]
    return charged_gpus(site, cell, study.system.gpus_per_node) * minutes / 60


def awaited_jobs(
    studies: Iterable[Study], results: Path, folder: Path, jobs: Collection[SlurmJob]
) -> Mapping[Path, SlurmJob]:
    """Jobs of an earlier call that are still in the queue, by the record that each will write.

    jobs: this user's. folder: where those of interest were submitted from.
    """
    awaited = {}
    for study in studies if jobs else ():
        missing = without_record(study, results)
        found = jobs_of_cells(study.system.name, missing, jobs, folder)
        awaited |= {
            record_path(results, study.system.name, planned): found[planned.key]
            for planned in missing
            if planned.key in found and found[planned.key].is_in_queue
        }
    return awaited


def chunks(items: Iterable[Any], size: int) -> list[list[Any]]:
    """The items in their order, so many at a time."""
    every = list(items)
    return [every[first : first + size] for first in range(0, len(every), size)]


def hours_text(hours: float) -> str:
    """Three digits, and whole numbers as people write them: `0.0125`, `1.5`, `21,600`."""
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
