"""Show what became of the cells of some studies, or of all."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from contracts.errors import ConfigError
from launcher.slurm.queue import Queue, look_at_queue
from planning.plan import Study
from planning.studies import load_study, study_names
from records.standing import outcomes_now
from reporting.status_table import print_table, status_rows, summary, write_status


def show_status(names: Sequence[str], system: str, root: Path, csv_path: Path | None, shown: IO[str]) -> None:
    """Write the status of these studies to `shown`, or of every study of config/studies/ where none is named.

    csv_path: where to write the rows as well. What cannot be told goes to stderr. Raises ConfigError.
    """
    broken: dict[str, str] = {}
    if names:
        studies = [load_study(name, system, root) for name in names]
    else:
        studies, broken = readable_studies(system, root)
    rows = []
    queue = look_at_queue(studies[0].system) if studies else Queue()
    if queue.silence:
        print(f"Slurm cannot be asked which cells have a job in the queue: {queue.silence}", file=sys.stderr)
    for study in studies:
        of_study = status_rows(study, outcomes_now(study, root / "results", root, queue))
        # Of studies that nobody asked for and nobody has run the last line says it all.
        if names or any(row["state"] not in ("missing", "unsupported") for row in of_study):
            print_table(of_study, shown)
        print(summary(study, of_study), file=shown)
        rows += of_study
    for name, reason in broken.items():
        print(f"{name}: left out: {reason}", file=sys.stderr)
    if csv_path:
        write_status(rows, csv_path)
    shown.flush()


def readable_studies(system: str, root: Path) -> tuple[list[Study], dict[str, str]]:
    """Return every study on the system, and of those that cannot be read what is wrong, by name."""
    studies, broken = [], {}
    for name in study_names(root):
        try:
            studies.append(load_study(name, system, root))
        except ConfigError as error:
            broken[name] = str(error)
    if broken and not studies:
        raise ConfigError(next(iter(broken.values())))
    return studies, broken
