"""Show what became of a study's cells, or set records aside so that their cells run again.

    status.py [STUDY ...]           every cell: done, running, failed and why, how long it took
    status.py forget [--status oom,not_available] [--code-changed] [--busy-host] [--cell ID] [--framework NAME] STUDY

Without a study: every one of config/studies/ that can be read. `forget` takes the records that are all that its options
say, and deletes nothing: a record stays beside its cell as record.forgotten-<time>.json.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import whole_bytecode  # noqa: F401  (first of the project's modules, for what its import does)
from contracts.atomic import replace_when_complete
from contracts.errors import ConfigError, nearest
from contracts.outcomes import RECORDED_STATUSES, Outcome
from contracts.project_files import project_folder
from launcher.slurm.queue import Queue, look_at_queue
from metrics.circumstances import BUSY_HOST_PERCENT, others_cpu_percent
from planning.budget import hours_text
from planning.plan import PlannedCell, Study
from planning.plan_lines import threads_words
from planning.studies import load_study, study_names
from records.reader import read_outcomes
from records.setting_aside import forget
from records.standing import outcomes_now
from settings.config import read_config

ROOT = project_folder()
COLUMNS = (
    "study", "framework", "model", "num_gpus", "global_batch_size", "layout", "repeat", "state", "status", "kind",
    "code_changed", "duration_s", "gpu_hours", "job_id", "cell_id", "reason",
)  # fmt: skip


def main() -> int:
    arguments = sys.argv[1:]
    try:
        if arguments[:1] == ["forget"]:
            return run_forget(arguments[1:])
        code = run_show(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `| head` has seen enough; what is left is flushed to nowhere when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


def run_show(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="status.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="*", metavar="STUDY", help="names of files in config/studies/")
    parser.add_argument("--system", help="name of the file in config/systems/ (default: the one of config/config.yaml)")
    parser.add_argument("--csv", type=Path, help="also write the table to this file")
    args = parser.parse_args(arguments)
    system = args.system or read_config(ROOT / "config" / "config.yaml", "config", ROOT)["system"]
    broken: dict[str, str] = {}
    if args.studies:
        studies = [load_study(name, system, ROOT) for name in args.studies]
    else:
        studies, broken = readable_studies(system, ROOT)
    rows = []
    queue = look_at_queue(studies[0].system) if studies else Queue()
    if queue.silence:
        print(f"Slurm cannot be asked which cells have a job in the queue: {queue.silence}", file=sys.stderr)
    for study in studies:
        of_study = status_rows(study, outcomes_now(study, ROOT / "results", ROOT, queue))
        # Of studies that nobody asked for and nobody has run the last line says it all.
        if args.studies or any(row["state"] not in ("missing", "unsupported") for row in of_study):
            print_table(of_study, sys.stdout)
        print(summary(study, of_study))
        rows += of_study
    for name, reason in broken.items():
        print(f"{name}: left out: {reason}", file=sys.stderr)
    if args.csv:
        with replace_when_complete(args.csv, "w") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0


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


@dataclass(frozen=True)
class Wanted:
    """Which records `forget` takes: those that meet everything that is given here."""

    statuses: tuple[str, ...] = ()
    code_changed: bool = False
    busy_host: bool = False
    cells: tuple[str, ...] = ()  # ids, or what they begin with
    frameworks: tuple[str, ...] = ()

    def check(self, study: Study) -> None:
        """Raise ConfigError where a framework or a cell is none of the study's."""
        for name in self.frameworks:
            if name not in study.frameworks:
                raise ConfigError(f"{study.name} has no framework {name!r}{nearest(name, study.frameworks)}")
        known = {planned.cell.cell_id for planned in study.planned}
        for cell_id in self.cells:
            if not any(known_id.startswith(cell_id) for known_id in known):
                raise ConfigError(f"{study.name} has no cell {cell_id!r}: status.py {study.name} shows their ids")

    def is_met(self, outcome: Outcome) -> bool:
        """Return whether the record of an outcome is one of these; there must be one."""
        record = outcome.record
        assert record is not None
        return (
            (not self.statuses or outcome.status in self.statuses)
            and (not self.code_changed or bool(outcome.code_changed))
            and (not self.frameworks or record["framework"] in self.frameworks)
            and (not self.cells or record["cell_id"].startswith(self.cells))
            and (not self.busy_host or was_busy(record))
        )


def was_busy(record: Mapping[str, Any]) -> bool:
    """Return whether others used so much of the host that a note under the tables says it."""
    percent = others_cpu_percent(record["launch"])
    return percent is not None and percent > BUSY_HOST_PERCENT


def run_forget(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="status.py forget", description="Set records aside, so that their cells run again."
    )
    parser.add_argument("study", metavar="STUDY", help="name of the file in config/studies/")
    parser.add_argument("--system", help="name of the file in config/systems/ (default: the one of config/config.yaml)")
    parser.add_argument(
        "--status", type=_statuses, default=(), help=f"records of these, of {','.join(RECORDED_STATUSES)}"
    )
    parser.add_argument("--code-changed", action="store_true", help="records measured by other code than today's")
    parser.add_argument(
        "--busy-host", action="store_true", help="records of a time at which others used the host's cores"
    )
    parser.add_argument("--cell", type=_comma_separated, default=(), metavar="ID", help="records of these cells, by id")
    parser.add_argument(
        "--framework", type=_comma_separated, default=(), metavar="NAME", help="records of these frameworks"
    )
    args = parser.parse_args(arguments)
    wanted = Wanted(args.status, args.code_changed, args.busy_host, args.cell, args.framework)
    if wanted == Wanted():
        parser.error(
            "say which records: --status, --code-changed, --busy-host, --cell, --framework (of several, those that are "
            "all of them)"
        )
    system = args.system or read_config(ROOT / "config" / "config.yaml", "config", ROOT)["system"]
    study = load_study(args.study, system, ROOT)
    wanted.check(study)
    moved = forget(study, read_outcomes(study, ROOT / "results"), ROOT / "results", wanted.is_met)
    for path in moved:
        print(f"set aside: {path.relative_to(ROOT)}")
    print(f"{len(moved)} records of {study.name} set aside; the next call measures these cells again")
    if moved:
        print("nothing is deleted: renamed back to record.json, a record counts again")
    return 0


def status_rows(study: Study, outcomes: Mapping[tuple[str, int], Outcome]) -> list[dict[str, object]]:
    """Return one row per cell and repeat, however many comparisons share it."""
    planned = {p.key: p for p in study.planned}
    return [_row(study, planned[key], outcome) for key, outcome in outcomes.items()]


def state_of(outcome: Outcome) -> str:
    """Return where a cell stands: done, stale (done, by other code), queued, running, not known (begun where it cannot
    be seen), failed, missing (never tried, or too large for the system), unsupported.
    """
    if outcome.record is not None:
        return "stale" if outcome.code_changed else "done"
    if outcome.status == "unsupported":
        return "unsupported"
    if outcome.kind in ("queued", "running", "not_known"):
        return outcome.kind.replace("_", " ")
    return "missing" if outcome.kind in ("never_ran", "too_large", "forgotten") else "failed"


def _row(study: Study, planned: PlannedCell, outcome: Outcome) -> dict[str, object]:
    cell = planned.cell
    seconds = duration_s(outcome)
    return {
        "study": study.name,
        "framework": cell.framework,
        "model": cell.model.name,
        "num_gpus": cell.num_gpus,
        "global_batch_size": cell.global_batch_size,
        "layout": cell.layout.label(),
        "repeat": planned.repeat,
        "state": state_of(outcome),
        "status": outcome.status,
        "kind": outcome.kind,
        "code_changed": "" if outcome.code_changed is None else str(outcome.code_changed).lower(),
        "duration_s": "" if seconds is None else f"{seconds:g}",
        "gpu_hours": "" if seconds is None else f"{seconds * cell.num_gpus / 3600:.4g}",
        "job_id": outcome.job_id,
        "cell_id": cell.cell_id,
        "reason": outcome.reason,
    }


def duration_s(outcome: Outcome) -> float | None:
    """Return the time from the start of the launch to its end, from the record; None where a clock was set back."""
    if outcome.record is None:
        return None
    began, ended = (datetime.fromisoformat(outcome.record[key]) for key in ("started_at", "finished_at"))
    return (ended - began).total_seconds() if ended >= began else None


def print_table(rows: Sequence[Mapping[str, object]], file: IO[str]) -> None:
    shown = [
        column for column in COLUMNS if column not in ("study", "gpu_hours") and any(row[column] != "" for row in rows)
    ]
    widths = {column: max(len(column), *(len(str(row[column])) for row in rows)) for column in shown}
    print("  ".join(column.ljust(widths[column]) for column in shown).rstrip(), file=file)
    for row in rows:
        print("  ".join(str(row[column]).ljust(widths[column]) for column in shown).rstrip(), file=file)


def summary(study: Study, rows: Sequence[Mapping[str, object]]) -> str:
    counts = Counter(str(row["state"]) for row in rows)
    changed = sum(row["code_changed"] == "true" for row in rows)
    text = f"{study.name} on {study.system.name}: {len(rows)} cells: " + ", ".join(
        f"{n} {s}" for s, n in counts.items()
    )
    hours = sum(float(str(row["gpu_hours"])) for row in rows if row["gpu_hours"] != "")
    unit, units = ("process", "processes") if study.system.device == "cpu" else ("GPU", "GPUs")
    text += f"; {hours_text(hours)} {unit}-hours of the {units} that measured them"
    if study.system.threads_derived:
        text += f"; {threads_words(study.system)}"
    if changed:
        text += f"; {changed} measured by other code than today's (status.py forget --code-changed {study.name})"
    return text


def _comma_separated(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _statuses(text: str) -> tuple[str, ...]:
    statuses = _comma_separated(text)
    for status in statuses:
        if status not in RECORDED_STATUSES:
            raise argparse.ArgumentTypeError(f"{status!r} has no record to forget{nearest(status, RECORDED_STATUSES)}")
    return statuses


if __name__ == "__main__":
    sys.exit(main())
