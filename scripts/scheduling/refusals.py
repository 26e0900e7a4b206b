"""Cells whose job Slurm refused: sbatch's words, from Snakemake's own log, the only place where they stand."""

from __future__ import annotations

import re
from pathlib import Path

from launching.placement import host_name
from launching.results import Failure, now, write_failure

# One error as Snakemake writes it: the Slurm plugin's message, then the job's files.
REFUSED = re.compile(
    r"^Error in rule train_cell:\n    message: SLURM sbatch failed\. The error message was '(?P<words>(?s:.*?))'\.\n"
    r"(?:(?!^Error in rule).*\n)*?    output: (?P<record>\S.*)$",
    re.MULTILINE,
)


def refusals(log: str) -> dict[Path, str]:
    """Record that was asked for -> what sbatch said, from the text of a Snakemake log."""
    return {Path(found["record"]): " ".join(found["words"].split()) for found in REFUSED.finditer(log)}


def note_refusals(log: Path) -> None:
    """Keep them beside the cells, where the tables and status.py look."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for record, words in refusals(text).items():
        record.parent.mkdir(parents=True, exist_ok=True)
        reason = f"Slurm refused the job: {words}"
        write_failure(record.parent, Failure("refused", reason, None, (), now(), host_name(), None))
