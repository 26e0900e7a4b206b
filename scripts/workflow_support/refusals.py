"""Refuse a call before it starts anything: studies that could not be used, and jobs that would go nowhere or twice."""

from __future__ import annotations

from pathlib import Path

from contracts.errors import nearest, one_line
from contracts.project_files import CODE, shipped, shipped_names, shown
from installation.plugins import stale_plugins
from launcher.slurm.queue import has_slurm
from papers import check_cells, check_outputs
from planning.job_resources import unsafe_folder
from planning.plan import without_record
from workflow_support.call import RESULTS, Call
from workflow_support.messages import explained, stop
from workloads.training.tokens_needed import check_enough_tokens, token_count


def check_study(call: Call, name: str) -> None:
    """Read a study, and end the call where its tables and figures cannot be made of what it measures, where its
    reference cannot be used, or where its corpus is too small for a cell that has no record yet.
    """
    study = call.study(name)
    where = f"config/studies/{name}.yaml"
    try:
        check_outputs(study.paper, study.tables, study.figures, [c.scaling for c in study.comparisons])
        check_cells(study.paper, [planned.cell for planned in study.planned])
    except ValueError as error:
        stop(f"{where}: {error}")
    if study.reference:
        _check_reference(where, study.reference, call.root)
    count = token_count(study.corpus, RESULTS)
    if count:
        missing = [planned.cell for planned in without_record(study, RESULTS)]
        explained(check_enough_tokens, where, study.corpus.name, count, missing)


def _check_reference(where: str, name: str, root: Path) -> None:
    # As messages name it; Snakemake works in `root`.
    path = Path(shown(shipped(root, f"reference/{name}.csv"), root))
    if not path.is_file():
        known = shipped_names(root, "reference/*.csv")
        stop(f"{where}: reference: no {name!r}{nearest(name, known)}")
    # Only a study with published numbers needs pandas to be looked at.
    from reporting.reference import read_reference

    try:
        read_reference(path)
    except ValueError as error:
        stop(f"{where}: reference: {one_line(str(error))}")


def check_start(call: Call) -> None:
    """Stop a real run that would submit jobs twice, or nowhere, before it starts anything."""
    system = call.system()
    in_slurm = call.workflow.executor_plugin.name.startswith("slurm")
    if call.queue_errors and has_slurm():
        stop("nothing is submitted: a cell that still has a job in the queue would get a second one")
    if system.slurm and not in_slurm:
        stop(f"the cells of system {system.name} are Slurm jobs (its file has `slurm`): run snakemake --profile slurm")
    if in_slurm and stale_plugins(CODE):
        stop(f"{', '.join(stale_plugins(CODE))} is installed in another state of it: pip install -r envs/workflow.txt")
    if system.slurm and not has_slurm():
        stop("squeue is not on PATH: start this on a login node of the cluster")
    if system.slurm and unsafe_folder(Path.cwd()):
        stop(unsafe_folder(Path.cwd()))
    if in_slurm and not system.slurm:
        stop(f"config/systems/{system.name}.yaml has no key `slurm`: use ./run, or --config system=<a cluster's file>")
