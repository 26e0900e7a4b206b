# What all stages share: the settings, the studies (read when a target asks for them), and a cell's values by its id.
import json
import os
import sys
from functools import cache, partial
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT / "scripts"))

from launching.environment import put_python_on_path
from launching.interpreter import interpreter_file
from matrix.cells import identity_hash
from matrix.config import check_config
from matrix.errors import ConfigError, nearest
from matrix.plan import index_cells, record_path, study_folder
from matrix.plan_lines import missing_lines, plan_lines
from matrix.sources import combined_digest
from matrix.studies import load_study, load_system, misspelt_studies, study_names, unusable_studies
from papers.loading import check_outputs
from scheduling.endings import ask_slurm_for_reasons
from scheduling.jobs import awaited_jobs, budget, tokenizing_resources, training_resources
from scheduling.queue import QueueError

RESULTS = Path("results")
# `python` in a rule is the interpreter that runs Snakemake, activated or not; a conda environment comes before it.
put_python_on_path()


def explained(function, *args):
    """Call it, and turn a user's mistake into Snakemake's own kind of error: a message without a traceback."""
    try:
        return function(*args)
    except ConfigError as error:
        raise WorkflowError(str(error)) from None


settings = explained(check_config, config, "config", ROOT, "config")
# The studies that the targets of this call ask for, for the hook that runs when some of their cells failed.
requested_studies = []
# Slurm jobs of an earlier call that are still in the queue, by the record each will write.
jobs_in_queue = {}


wildcard_constraints:
    system=r"[^/]+",
    study=r"[^/]+",
    framework=r"[^/]+",
    model=r"[^/]+",
    num_gpus=r"\d+",
    cell_id=r"[0-9a-f]{12}",
    repeat=r"\d+",
    corpus=r"[^/]+",
    split=r"[^/]+",
    table=r"[^/]+",
    figure=r"[^/]+",


@cache
def study_of(name, system):
    return explained(load_study, name, system, ROOT)


@cache
def system_of(name):
    return explained(load_system, name, ROOT)


def check_study(name):
    """A study of this call, read and checked to the names of its tables, figures and reference."""
    study = study_of(name, settings["system"])
    try:
        check_outputs(study.paper, study.tables, study.figures)
    except ValueError as error:
        raise WorkflowError(f"config/studies/{name}.yaml: {error}") from None
    if study.reference and not Path(f"reference/{study.reference}.csv").is_file():
        known = sorted(path.stem for path in Path("reference").glob("*.csv"))
        raise WorkflowError(
            f"config/studies/{name}.yaml: reference: no {study.reference!r}{nearest(study.reference, known)}"
        )


@cache
def cells_of(system):
    """Cell id -> values, of the studies that are asked for; of all of them where a cell alone is."""
    asked = [study for study in requested_studies if study.system.name == system]
    return index_cells(asked or [study_of(name, system) for name in study_names(ROOT)])


def cell_value(wildcards, key):
    """One of a cell's values, by the id in its path."""
    cells = cells_of(wildcards.system)
    if wildcards.cell_id not in cells:
        raise WorkflowError(f"cell {wildcards.cell_id} is in no study of config/studies on system {wildcards.system}")
    return cells[wildcards.cell_id][key]


def cell_at(record, key):
    """One of a cell's values, by the path of its record."""
    return cells_of(settings["system"])[record.parent.parent.name][key]


@cache
def corpus_setting(key):
    """What the command line of the tokenizer says for a corpus, by the name of its folder."""
    asked = requested_studies or [study_of(name, settings["system"]) for name in study_names(ROOT)]
    known = {study.corpus.key: study.corpus_setting for study in asked}
    if key not in known:
        raise WorkflowError(
            f"no study is trained on a corpus with the tokens {key}; there are {', '.join(sorted(known))}"
        )
    value = known[key]
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def reference_of(wildcards):
    """The file of published numbers that a study names, if it names one."""
    reference = study_of(wildcards.study, wildcards.system).reference
    return [f"reference/{reference}.csv"] if reference else []


def needed_to_train(wildcards):
    """A cell's tokens (the JSON beside the token file) and its framework's Python, unless it has its record."""
    w = wildcards
    folder = f"results/{w.system}/cells/{w.framework}/{w.model}/{w.num_gpus}gpu/{w.cell_id}/repeat{w.repeat}"
    if os.path.isfile(f"{folder}/record.json"):
        return []
    name = cell_value(wildcards, "environment")
    interpreter = interpreter_file(name, system_of(w.system).environment_source(name))
    return [ancient(path) for path in (cell_value(wildcards, "tokens"), interpreter) if path]


def cells_digest(wildcards):
    """Of a study's cells: a parameter, so that another set of cells is collected anew."""
    study = study_of(wildcards.study, wildcards.system)
    return identity_hash({"cells": [list(planned.key) for planned in study.runnable()]})


def find_jobs_in_queue(studies):
    """Look once, before anything is submitted; not being able to ask must not lead to a second copy of a job."""
    try:
        jobs_in_queue.update(awaited_jobs(studies, RESULTS, Path.cwd()))
    except QueueError as error:
        raise WorkflowError(
            f"Slurm cannot be asked which cells still have a job in the queue, so none is submitted: {error}"
        ) from None
    for record, job in jobs_in_queue.items():
        logger.warning(
            f"{record.parent}: job {job.job_id} of an earlier call is {job.state.lower()}; it is waited for, and no second one submitted"
        )


def study_targets(name, wildcards=None):
    """Everything a study asks for. The records are listed themselves: a table made before one failed must not hide it."""
    study = study_of(name, settings["system"])
    tell_plan(study)
    tell_budget(study)
    if not study.runnable():
        return []
    requested_studies.append(study)
    folder = study_folder(RESULTS, study)
    return [
        *(record_path(RESULTS, study.system.name, planned) for planned in study.runnable()),
        folder / "measurements.csv",
        *(folder / "tables" / f"{table}.csv" for table in study.tables),
        *(folder / "figures" / f"{figure}.svg" for figure in study.figures),
    ]


def write_partial_outputs(study):
    """Some cells failed, so the rules behind them did not run: write what the others measured, and say what is missing."""
    from study_outputs import missing_cells, write_study_outputs

    try:
        ask_slurm_for_reasons(study, ROOT / "results", Path.cwd())
        folder = write_study_outputs(study, ROOT)
        missing = missing_cells(study, ROOT)
    except (ValueError, OSError) as error:
        logger.error(f"{study.name}: tables of the finished cells could not be written: {error}")
        return
    for line in missing:
        logger.error(f"{study.name}: missing: {line}")
    if not missing:
        logger.error(f"{study.name}: every cell is measured, and a later step failed; its message stands above.")
        return
    logger.error(
        f"{study.name}: {len(missing)} of {len(study.runnable())} cells are missing; what the others measured is in "
        f"{folder.relative_to(ROOT)}. The same command again runs the missing ones."
    )


def tell_plan(study):
    """Say once which planned cells will not be launched and why; in a dry run also what each missing cell is."""
    if study in requested_studies:
        return
    for line in plan_lines(study):
        logger.warning(line)
    if workflow.dryrun:
        for line in missing_lines(study, RESULTS):
            logger.info(line)


def tell_budget(study):
    """Say once, before anything is submitted, what the missing cells will ask of Slurm."""
    keys = [
        planned.key for planned in study.runnable() if record_path(RESULTS, study.system.name, planned) in jobs_in_queue
    ]
    cost = budget(study, RESULTS, keys)
    if cost and cost.jobs and study not in requested_studies:
        logger.warning(f"{study.name} on {study.system.name}: {cost.words()}")


@cache
def code_digest(*scripts):
    """One digest of entry points and all project files they import; a parameter, so that an edit makes outputs anew."""
    return combined_digest(scripts)


def adaptor_code(wildcards):
    """Of a study's adaptors: an edit trains nothing, but the rows measured before it are marked."""
    return code_digest(*(f"frameworks/{name}.py" for name in study_of(wildcards.study, wildcards.system).frameworks))


def table_code(script):
    """The code behind a table or figure: the script, and the module of the paper that it imports by name."""
    return lambda wildcards: code_digest(script, f"papers/{study_of(wildcards.study, wildcards.system).paper}.py")
