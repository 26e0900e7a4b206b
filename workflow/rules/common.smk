# What all stages share: the settings, the studies (read when a target asks for them), and a cell's values by its id.
import json
import os
import runpy
import shlex
import sys
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT / "scripts"))
# Before the first import of a module: what a full disk left of compiled ones. Run as a file, it needs no compiled one.
runpy.run_path(str(ROOT / "scripts" / "whole_bytecode.py"))

from contracts.atomic import replace_when_complete
from installation.plugins import stale_plugins
from launcher.shared_settings import put_python_on_path, shared_settings
from launcher.interpreter import interpreter_file
from launcher.login_shell import dropped_settings
from launcher.run_lock import locked_outputs, note_owner, refusal
from settings.config import check_config, read_config
from contracts.errors import ConfigError, nearest, one_line
from planning.adaptors import environment_digest
from reporting.made_from import (
    change_note,
    drawn_changes,
    drawn_file,
    file_digest,
    left_notes,
    measurements_changes,
    reference_path,
)
from planning.plan import index_cells, study_folder, without_record, record_path
from planning.plan_lines import missing_lines, plan_lines
from planning.studies import load_hardware, load_study, load_system, misspelt_studies, study_names, unusable_studies
from workloads.training.tokens_needed import check_enough_tokens, token_count
from reporting.figure_forms import file_endings
from papers import check_cells, check_outputs, load_paper
from reporting.reference import read_reference
from records.standing import outcomes_now
from planning.budget import budget
from launcher.slurm.failed_steps import note_failed_steps
from launcher.slurm.jobs import awaited_jobs, chunks, tokenizing_resources, training_resources
from launcher.slurm.partitions import limits_lines
from launcher.slurm.queue import has_slurm, look_at_queue
from planning.job_resources import unsafe_folder
from launcher.slurm.trying import refused_lines
from snakemake_logger_plugin_cells import take_over
from terminal.shown_cells import cells_to_show
from terminal.snakemake_words import OURS

RESULTS = Path("results")
# Tells a job which studies the call that submitted it was about: a cell may be in several, with several time limits.
ASKED_VARIABLE = "SCALING_EVAL_STUDIES"
TABLE_SUFFIXES = (".csv", ".md", ".tex")
FIGURE_SUFFIXES = file_endings()
# An input that no file is yet, for rules whose sources changed (tables.smk); another one in each call.
CHANGE_NOTE = change_note(Path("results/changes")).as_posix()
# `python` in a rule is the interpreter that runs Snakemake, activated or not; a conda environment comes before it.
put_python_on_path()
# On the terminal a line for every cell, in place of Snakemake's paragraph for every job. A job on a cluster keeps those,
# and its launcher's words, in its own log.
shows_cells = workflow.is_main_process and take_over(logger, workflow.output_settings)


def tell(message, **extra):
    """Say something that people need without --verbose."""
    logger.info(message, extra={OURS.needed: True, **extra})


def stop(message):
    """End this call with a message and nothing else: Snakemake adds a traceback to every exception but this one."""
    logger.error(message)
    raise SystemExit(1)


def explained(function, *args):
    """Return what the function returns; where it finds a user's mistake, end this call with its message."""
    try:
        return function(*args)
    except ConfigError as error:
        stop(str(error))


def read_settings():
    """Return config/config.yaml, with what the command line's --config and --configfile say in its place.

    Not by Snakemake's `configfile:`, which evaluates expressions in the file, lets a key given twice win, and names no
    line. `config` holds what the command line says, and nothing else; Snakemake hands it on to the jobs.
    """
    in_file = read_config(ROOT / "config" / "config.yaml", "config", ROOT)
    return check_config({**in_file, **config}, "config", ROOT, "--config or --configfile") if config else in_file


settings = explained(read_settings)
# The studies that the targets of this call ask for, for the hook that runs when some of their cells failed.
requested_studies = []
# Slurm jobs of an earlier call that are still in the queue, by the record each will write.
jobs_in_queue = {}
# Why Slurm could not be asked for them.
queue_errors = []
# Studies of which has been told what they will take.
told_budgets = set()


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
    # Or `<figure>_column.pdf` would be the PDF of a figure of that name.
    figure=r"[^/]+(?<!_column)",
    call=r"[^/]+",


@cache
def read_study(name, system):
    """Return a study; ConfigError where a file that it needs is wrong."""
    return load_study(name, system, ROOT)


def study_of(name, system):
    """Return a study, or end this call with what is wrong in a file that it needs."""
    return explained(read_study, name, system)


@cache
def system_of(name):
    return explained(load_system, name, ROOT)


def check_study(name):
    """Read a study of this call, and end the call where its tables and figures cannot be made of what it measures,
    where its reference cannot be used, or where its corpus is too small for a cell that has no record yet.
    """
    study = study_of(name, settings["system"])
    where = f"config/studies/{name}.yaml"
    try:
        check_outputs(study.paper, study.tables, study.figures, [c.scaling for c in study.comparisons])
        check_cells(study.paper, [planned.cell for planned in study.planned])
    except ValueError as error:
        stop(f"{where}: {error}")
    if study.reference:
        path = Path(f"reference/{study.reference}.csv")
        if not path.is_file():
            known = sorted(path.stem for path in Path("reference").glob("*.csv"))
            stop(f"{where}: reference: no {study.reference!r}{nearest(study.reference, known)}")
        try:
            read_reference(path)
        except ValueError as error:
            stop(f"{where}: reference: {one_line(str(error))}")
    count = token_count(study.corpus, RESULTS)
    if count:
        missing = [planned.cell for planned in without_record(study, RESULTS)]
        explained(check_enough_tokens, where, study.corpus.name, count, missing)


def asked_studies_of(system):
    """Return the studies that are asked for: in a job, by the call that submitted it; all where files are asked for."""
    asked = [study for study in requested_studies if study.system.name == system]
    if not asked and not workflow.is_main_process:
        asked = readable_studies(system, os.environ.get(ASKED_VARIABLE, "").split())
    return asked or readable_studies(system)


def readable_studies(system, names=None):
    """Return the studies of these names, or all, that can be read: a mistake in one costs no cell of another."""
    found = []
    for name in study_names(ROOT) if names is None else names:
        try:
            found.append(read_study(name, system))
        except ConfigError as error:
            logger.debug(f"not read: {error}")
    return found


@cache
def cells_of(system):
    """Return the values of each cell by its id: cells of the studies that are asked for, or of all studies."""
    return index_cells(asked_studies_of(system))


def cell_value(wildcards, key):
    """Return one of a cell's values, by the id in its path."""
    cells = cells_of(wildcards.system)
    if wildcards.cell_id not in cells:
        stop(f"cell {wildcards.cell_id} is in no study of config/studies that can be read on system {wildcards.system}")
    return cells[wildcards.cell_id][key]


@cache
def corpus_setting(key):
    """Return what the command line of the tokenizer says for a corpus, by the name of its folder."""
    known = {study.corpus.key: study.corpus_setting for study in asked_studies_of(settings["system"])}
    if key not in known:
        stop(f"no study is trained on a corpus with the tokens {key}; there are {', '.join(sorted(known))}")
    value = known[key]
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def reference_of(wildcards):
    """Return the file of published numbers that a study names, if it names one."""
    path = reference_path(study_of(wildcards.study, wildcards.system), Path())
    return [ancient(path.as_posix())] if path else []


def needed_to_train(wildcards):
    """Return a cell's tokens (the file and the JSON beside it) and its framework's Python, unless it has its record.

    Not ancient(): Snakemake leaves out a job with a missing output when an ancient input of it is there and made anew.
    """
    w = wildcards
    folder = f"results/{w.system}/cells/{w.framework}/{w.model}/{w.num_gpus}gpu/{w.cell_id}/repeat{w.repeat}"
    if os.path.isfile(f"{folder}/record.json"):
        return []
    name = cell_value(wildcards, "environment")
    source = system_of(w.system).environment_source(name)
    interpreter = interpreter_file(name, source)
    changes = changes_of_interpreter(name, source.kind)
    facts = cell_value(wildcards, "tokens")
    needed = [facts, str(Path(facts).with_suffix(".bin")), *([interpreter] if interpreter else [])]
    refuse_beside_others(needed)
    return [*needed, *changes]


@cache
def changes_of_interpreter(environment, kind):
    """Return an input that is to be made where the note of a Python is there and of another state of the environment's
    files, or where that Python is gone.
    """
    note = Path(f"environments/{kind}-{environment}.txt")
    # A job makes no environment: its launcher says what is wrong with the one that is there.
    if not workflow.is_main_process or not note.is_file():
        return []
    # Relative to the project where it lies in it.
    python = Path.cwd() / note.read_text(encoding="utf-8").strip()
    is_right = kind != "venv" or python == Path.cwd() / venv_folder(environment) / "bin" / "python"
    return [] if is_right and python.is_file() else [CHANGE_NOTE]


def venv_folder(environment):
    """Return the folder of an environment, named by what its files hold and not by their time."""
    return f"environments/venv-{environment}/{explained(environment_digest, environment, ROOT)}"


def study_folder_of(wildcards):
    return f"results/{wildcards.system}/{wildcards.study}"


@cache
def missing_records(name, system):
    """Return the records that a study has still to get, as this call found it. Those that are there are inputs of
    nothing: so no job is ever considered for one, whatever Snakemake finds changed, and it is never deleted.
    """
    study = study_of(name, system)
    return [record_path(RESULTS, system, planned) for planned in without_record(study, RESULTS)]


@cache
def found_changes(name, system, kind, output=""):
    """Return what has changed since an output of a study was made; nothing where it is not there or not whole, which
    Snakemake sees by itself, or where it is made anew with the measurements before it.
    """
    study = study_of(name, system)
    folder = study_folder(RESULTS, study)
    if not (folder / "measurements.csv").is_file() or missing_records(name, system):
        return []
    if kind == "measurements":
        return measurements_changes(study, ROOT)
    return [] if found_changes(name, system, "measurements") else drawn_changes(study, kind, output, ROOT)


def changed_outputs(study):
    """Return what changed since an output was made, by the output, of all that are there and will be made anew."""
    outputs = [("measurements", "")]
    outputs += [(kind, name) for kind, names in (("table", study.tables), ("figure", study.figures)) for name in names]
    changes = {output: found_changes(study.name, study.system.name, *output) for output in outputs}
    return {output: found for output, found in changes.items() if found}


def changes_of_measurements(wildcards):
    return [CHANGE_NOTE] if found_changes(wildcards.study, wildcards.system, "measurements") else []


def changes_of(kind):
    """Return an input function for the tables or the figures."""
    return lambda w: [CHANGE_NOTE] if found_changes(w.study, w.system, kind, getattr(w, kind)) else []


def measurements_of(wildcards):
    """Return a study's measurements as an input: of whatever age, unless this call makes them, and then in any case."""
    path = f"{study_folder_of(wildcards)}/measurements.csv"
    name, system = wildcards.study, wildcards.system
    if missing_records(name, system) or found_changes(name, system, "measurements"):
        return path
    return ancient(path)


def study_targets(name, wildcards=None):
    """Return all that a study asks for. Missing records are listed too: a table made without one must not hide it."""
    study = study_of(name, settings["system"])
    tell_budgets_beside(name)
    tell_plan(study)
    if study not in requested_studies:
        tell_changes(study)
    if not study.runnable():
        return []
    if study not in requested_studies:
        requested_studies.append(study)
    folder = study_folder(RESULTS, study)
    targets = [
        *missing_records(study.name, study.system.name),
        folder / "measurements.csv",
        # With all their formats: one that a killed call left out is made again.
        *(folder / "tables" / f"{table}{suffix}" for table in study.tables for suffix in TABLE_SUFFIXES),
        *(folder / "figures" / f"{figure}{suffix}" for figure in study.figures for suffix in FIGURE_SUFFIXES),
    ]
    refuse_beside_others(targets)
    # The note is asked for here as well: Snakemake makes no missing input for a rule that has nothing else to do.
    return [*targets, *([CHANGE_NOTE] if changed_outputs(study) else [])]


def all_cores():
    """Return the number of cores of this call, for rules that take them all."""
    try:
        return workflow.cores
    except WorkflowError:
        stop(
            f"config/systems/{settings['system']}.yaml has no key `slurm`, so its cells run on this machine: use ./run "
            f"or give --cores; or name a cluster's file with --config system=..."
        )
