"""What a call does before its first job and after its last one (`onstart`, `onsuccess`, `onerror`)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from snakemake.logging import logger

from contracts.atomic import replace_when_complete
from launcher.login_shell import dropped_settings
from launcher.run_lock import note_owner
from launcher.shared_settings import shared_settings
from launcher.slurm.failed_steps import note_failed_steps
from launcher.slurm.queue import Queue, look_at_queue
from planning.plan import Study, without_record
from records.standing import outcomes_now
from reporting.made_from import file_digest
from terminal.snakemake_words import OURS
from workflow_support.call import ASKED_VARIABLE, RESULTS, Call
from workflow_support.changes import OutputChanges
from workflow_support.messages import tell
from workflow_support.refusals import check_start


def at_start(call: Call, changes: OutputChanges) -> None:
    """Check that this run may begin, and leave what its jobs and a next call will look for."""
    note_owner(Path.cwd())
    changes.remove_left_notes()
    check_start(call)
    _tell_shell_settings(call)
    # Slurm hands the environment to the jobs.
    os.environ[ASKED_VARIABLE] = " ".join(study.name for study in call.requested)
    _keep_system_file(call)


def at_success(call: Call, changes: OutputChanges) -> None:
    """Say what is measured, where it is and who was fastest."""
    changes.remove_note()
    for study in call.requested:
        _tell_last_lines(study)


def at_error(call: Call, changes: OutputChanges, snakemake_logs: Iterable[str]) -> None:
    """Write what the finished cells measured: those that failed have stopped the rules behind them."""
    changes.remove_note()
    queue = look_at_queue(call.system())
    for study in call.requested:
        _write_partial_outputs(study, call.root, list(snakemake_logs), queue)


def kept_system_file(call: Call) -> str:
    """Return the system's file as a job reads it: a job is measured on the system that was described when it was
    submitted. Jobs of Slurm read a copy, which `at_start` makes.
    """
    path = Path(f"config/systems/{call.system_name}.yaml")
    if not call.system().slurm:
        return path.as_posix()
    return f"{RESULTS}/slurm-logs/systems/{call.system_name}-{file_digest(path)}.yaml"


def _keep_system_file(call: Call) -> None:
    path = Path(kept_system_file(call))
    if call.system().slurm and not path.exists():
        with replace_when_complete(path) as file:
            file.write(Path(f"config/systems/{call.system_name}.yaml").read_text(encoding="utf-8"))


def _tell_shell_settings(call: Call) -> None:
    """Say once which variables of this shell no training process gets, where cells are to be measured."""
    system = call.system()
    if call.is_main and any(without_record(study, RESULTS) for study in call.requested):
        given = shared_settings(1, system.environment)
        if dropped := dropped_settings(given, in_slurm=system.slurm is not None):
            logger.warning(dropped)


def _write_partial_outputs(study: Study, root: Path, snakemake_logs: Iterable[str], queue: Queue) -> None:
    """Write a study's measurements, tables and figures, and say which cells are missing and why."""
    # Only here is anything drawn, so a call without failures imports no plotting library.
    from papers import load_paper
    from reporting.study_outputs import missing_cells, write_study_outputs

    failures = note_failed_steps(study, map(Path, snakemake_logs), root)
    missing = missing_cells(study, outcomes_now(study, root / RESULTS, root, queue, failures))
    for key, line in missing.items():
        logger.error(f"{study.name}: missing: {line}", extra={OURS.cell: key})
    try:
        folder = write_study_outputs(study, load_paper(study.paper), root, queue, failures)
    except (ValueError, OSError) as error:
        logger.error(f"{study.name}: tables of the finished cells could not be written: {error}")
        return
    _tell_last_lines(study)
    if not missing:
        logger.error(f"{study.name}: every cell is measured, and a later step failed; its message stands above.")
        return
    logger.error(
        f"{study.name}: {len(missing)} of {len(study.runnable())} cells are missing; what the others measured is in "
        f"{folder.relative_to(root)}. The same command again runs the missing ones."
    )


def _tell_last_lines(study: Study) -> None:
    from terminal.last_lines import last_lines

    try:
        for line in last_lines(study, RESULTS):
            tell(line)
    except (ValueError, OSError) as error:
        logger.error(f"{study.name}: what came out cannot be told: {error}")
