"""Between the plan and Slurm: what the rules ask for a cell, and which jobs are already there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from launcher.slurm.queue import SlurmJob, jobs_of_cells
from planning.job_resources import cell_resources, site_resources
from planning.plan import Study, record_path, without_record
from settings.systems import System

PER_CELL = ("nodes", "tasks", "gres", "mem", "runtime", "slurm_extra")
# wikitext-103 takes about half a minute with two processes; memory is flat at about 60 MB each (benchmarks/README.md).
LOGIN_THREADS = 2
TOKENIZING_THREADS = 4
TOKENIZING_MINUTES = 60
TOKENIZING_MEMORY_MB_PER_PROCESS = 1000
CellValue = Callable[[Any, str], Any]


def training_resources(system: System, cell_value: CellValue) -> dict[str, Any]:
    """{"threads", "resources"} of the rule that trains; nothing where cells run on this machine.

    cell_value: (wildcards, key) -> a value of the cell (planning/plan.py, index_cells).
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
