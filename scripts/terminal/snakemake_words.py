"""Which of Snakemake's messages a person needs who has a line for every cell; --verbose shows all of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import SimpleNamespace

# What the Snakefile adds to its own messages (`extra=`): that people need it; cells that the call is about; the cell
# that it is about, which may have been told already.
OURS = SimpleNamespace(needed="is_needed", cells="cells_to_show", cell="key_of_cell")

# Of a real run, before its jobs begin: what it was given, and what holds for every run of this workflow.
GIVEN = (
    "Building DAG of jobs", "Using shell: ", "Provided ", "Rules claiming more threads", "Conda environments: ignored",
    "Singularity containers: ignored", "Group jobs: inactive", "Determining filesystem type", "Processed ",
    "SLURM run ID: ",
)  # fmt: skip
# Of a real run, once its jobs have begun: all else at this level is about single jobs, or about the end of the run.
NEEDED = ("Terminating processes", "Shutting down", "Will exit after finishing", "Trying to restart job")
# Said better, and at once, by the line of the cell or step that failed, and by the last lines. What Snakemake cannot
# restore is the record that the failed cell has never had.
SAID_BY_OTHERS = (
    "Exiting because a job execution failed", "At least one job did not complete", "--keep-incomplete mode is set",
    "record.json: no backup found",
)  # fmt: skip
LOG_PATH = "Complete log(s): "


@dataclass(frozen=True)
class Situation:
    """What decides beside the message itself. stats_shown: how often Snakemake has listed its jobs, with this time."""

    dryrun: bool = False
    printshellcmds: bool = False
    show_failed_logs: bool = False
    stats_shown: int = 0
    has_failed: bool = False


def is_shown(record: logging.LogRecord, situation: Situation) -> bool:
    """Return whether a message of Snakemake, or of the Snakefile, is shown as it is."""
    event = str(getattr(record, "event", None) or "")
    text = str(record.msg or "")
    if event in ("job_info", "shellcmd"):
        return situation.printshellcmds
    if event == "run_info":  # a dry run ends with its second list of jobs
        return situation.dryrun and situation.stats_shown != 1
    if event in ("workflow_started", "job_started", "job_finished", "progress", "resources_info"):
        return False
    if event == "job_error":
        return situation.show_failed_logs
    if event == "error" and is_exit_of_a_job(text):
        return False
    if any(words in text for words in SAID_BY_OTHERS):
        return not situation.has_failed
    if record.levelno >= logging.WARNING:
        return True
    if situation.dryrun:
        return not text.startswith("Reasons:")
    if not situation.stats_shown:
        return not text.startswith(GIVEN)
    return text.startswith(NEEDED) or (text.startswith(LOG_PATH) and situation.has_failed)


def is_needed(record: logging.LogRecord) -> bool:
    """Return whether a message is the Snakefile's own, for people."""
    return bool(getattr(record, OURS.needed, False))


def is_exit_of_a_job(text: str) -> bool:
    """Return whether an error only says that a rule's command ended with an exit status: the failure of its job, which
    has a line of its own, is told next.
    """
    return "CalledProcessError in file" in text and "returned non-zero exit status" in text
