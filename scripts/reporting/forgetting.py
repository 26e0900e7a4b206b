"""Choose records that are to be set aside, so that their cells run again."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.errors import ConfigError, nearest
from contracts.outcomes import RECORDED_STATUSES, Outcome
from metrics.circumstances import BUSY_HOST_PERCENT, others_cpu_percent
from planning.plan import Study
from planning.studies import load_study
from records.reader import read_outcomes
from records.setting_aside import forget


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


def forget_parser() -> argparse.ArgumentParser:
    """Return the parser of `status.py forget`; `wanted_from` makes the choice of what it returns."""
    parser = argparse.ArgumentParser(
        prog="status.py forget", description="Set records aside, so that their cells run again."
    )
    parser.add_argument("study", metavar="STUDY", help="name of the file in config/studies/")
    parser.add_argument("--system", help="name of the file in config/systems/ (default: the one of config/config.yaml)")
    parser.add_argument(
        "--status", type=statuses_to_forget, default=(), help=f"records of these, of {','.join(RECORDED_STATUSES)}"
    )
    parser.add_argument("--code-changed", action="store_true", help="records measured by other code than today's")
    parser.add_argument(
        "--busy-host", action="store_true", help="records of a time at which others used the host's cores"
    )
    parser.add_argument("--cell", type=comma_separated, default=(), metavar="ID", help="records of these cells, by id")
    parser.add_argument(
        "--framework", type=comma_separated, default=(), metavar="NAME", help="records of these frameworks"
    )
    return parser


def wanted_from(args: argparse.Namespace) -> Wanted:
    """Return the choice that the options make; ConfigError where there is none."""
    wanted = Wanted(args.status, args.code_changed, args.busy_host, args.cell, args.framework)
    if wanted == Wanted():
        raise ConfigError(
            "status.py forget: say which records: --status, --code-changed, --busy-host, --cell, --framework (of "
            "several, those that are all of them)"
        )
    return wanted


def forget_records(study_name: str, system: str, wanted: Wanted, root: Path) -> list[str]:
    """Set the wanted records of a study aside, and return what a person is told. Raises ConfigError."""
    study = load_study(study_name, system, root)
    wanted.check(study)
    moved = forget(study, read_outcomes(study, root / "results"), root / "results", wanted.is_met)
    back = ["nothing is deleted: renamed back to record.json, a record counts again"] if moved else []
    return [
        *(f"set aside: {path.relative_to(root)}" for path in moved),
        f"{len(moved)} records of {study.name} set aside; the next call measures these cells again",
        *back,
    ]


def comma_separated(text: str) -> tuple[str, ...]:
    """Return the words of an argument such as `one,two`."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def statuses_to_forget(text: str) -> tuple[str, ...]:
    """Return the statuses of an argument such as `oom,nan`; ArgumentTypeError for one that has no record."""
    statuses = comma_separated(text)
    for status in statuses:
        if status not in RECORDED_STATUSES:
            raise argparse.ArgumentTypeError(f"{status!r} has no record to forget{nearest(status, RECORDED_STATUSES)}")
    return statuses
