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

import whole_bytecode
from launching.environment import put_python_on_path
from launching.interpreter import interpreter_file
from launching.run_lock import note_owner
from matrix.cells import identity_hash
from matrix.config import check_config
from matrix.errors import ConfigError, nearest
from matrix.frameworks import environment_digest
from matrix.plan import index_cells, record_path, study_folder
from matrix.plan_lines import missing_lines, plan_lines
from matrix.sources import combined_digest
from matrix.studies import load_hardware, load_study, load_system, misspelt_studies, study_names, unusable_studies
from papers.loading import check_outputs
from scheduling.endings import ask_slurm_for_reasons
from scheduling.jobs import awaited_jobs, budget, chunks, tokenizing_resources, training_resources
from scheduling.queue import QueueError, has_slurm
from scheduling.refusals import note_refusals

RESULTS = Path("results")
# Tells a job which studies the call that submitted it was about: a cell may be in several, with several time limits.
ASKED_VARIABLE = "SCALING_EVAL_STUDIES"
TABLE_SUFFIXES = (".csv", ".md", ".tex")
FIGURE_SUFFIXES = (".svg", ".pdf", ".png")
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
# Why Slurm could not be asked for them.
queue_errors = []


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


def asked_studies_of(system):
    """The studies that are asked for: in a job, by the call that submitted it. Where files are asked for, all studies."""
    asked = [study for study in requested_studies if study.system.name == system]
    if not asked and not workflow.is_main_process:
        asked = readable_studies(system, os.environ.get(ASKED_VARIABLE, "").split())
    return asked or readable_studies(system)


def readable_studies(system, names=None):
    """Of these names, or of all: a mistake in one study's file must not take the cells of the others with it."""
    found = []
    for name in study_names(ROOT) if names is None else names:
        try:
            found.append(study_of(name, system))
        except WorkflowError as error:
            logger.debug(f"not read: {error}")
    return found


@cache
def cells_of(system):
    """Cell id -> values, of the studies that are asked for; of all of them where a cell alone is."""
    return index_cells(asked_studies_of(system))


def cell_value(wildcards, key):
    """One of a cell's values, by the id in its path."""
    cells = cells_of(wildcards.system)
    if wildcards.cell_id not in cells:
        raise WorkflowError(
            f"cell {wildcards.cell_id} is in no study of config/studies that can be read on system {wildcards.system}"
        )
    return cells[wildcards.cell_id][key]


@cache
def corpus_setting(key):
    """What the command line of the tokenizer says for a corpus, by the name of its folder."""
    known = {study.corpus.key: study.corpus_setting for study in asked_studies_of(settings["system"])}
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
    """A cell's tokens (the file and the JSON beside it) and its framework's Python, unless it has its record.

    Not ancient(): Snakemake leaves out a job whose output is missing when an ancient input of it is there and made anew.
    """
    w = wildcards
    folder = f"results/{w.system}/cells/{w.framework}/{w.model}/{w.num_gpus}gpu/{w.cell_id}/repeat{w.repeat}"
    if os.path.isfile(f"{folder}/record.json"):
        return []
    name = cell_value(wildcards, "environment")
    interpreter = interpreter_file(name, system_of(w.system).environment_source(name))
    facts = cell_value(wildcards, "tokens")
    return [facts, str(Path(facts).with_suffix(".bin")), *([interpreter] if interpreter else [])]


def records_of(study):
    """A study's records as inputs. One that is there is named by its absolute path, which no rule's output matches: so
    no job is ever considered for it, whatever Snakemake finds changed in parameters or times, and it is never deleted.
    """
    paths = [record_path(RESULTS, study.system.name, planned) for planned in study.runnable()]
    return [path.absolute() if path.is_file() else path for path in paths]


def cells_digest(wildcards):
    """Of a study's cells: a parameter, so that another set of cells is collected anew."""
    study = study_of(wildcards.study, wildcards.system)
    return identity_hash({"cells": [list(planned.key) for planned in study.runnable()]})


def study_targets(name, wildcards=None):
    """Everything a study asks for. The records are listed themselves: a table made before one failed must not hide it."""
    study = study_of(name, settings["system"])
    tell_budget(study)
    tell_plan(study)
    if not study.runnable():
        return []
    if study not in requested_studies:
        requested_studies.append(study)
    folder = study_folder(RESULTS, study)
    return [
        *records_of(study),
        folder / "measurements.csv",
        # With all their formats: one that a killed call left out is made again.
        *(folder / "tables" / f"{table}{suffix}" for table in study.tables for suffix in TABLE_SUFFIXES),
        *(folder / "figures" / f"{figure}{suffix}" for figure in study.figures for suffix in FIGURE_SUFFIXES),
    ]


def all_cores():
    """Of this machine, for rules that take them all."""
    try:
        return workflow.cores
    except WorkflowError:
        raise WorkflowError(
            f"config/systems/{settings['system']}.yaml has no key `slurm`, so its cells run on this machine: use ./run "
            f"or give --cores; or name a cluster's file with --config system=..."
        ) from None


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
