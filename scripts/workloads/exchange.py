"""The files through which ranks report to their launcher, in one folder per launch.

A rank leaves `rank<r>.arrived` when it is about to meet the others, `rank<r>.started` once it has, then either
`rank<r>.json` (what it measured) or `rank<r>.failed.json` (why it could not).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contracts.atomic import write_json
from workloads.rendezvous import look_again

# Before the report of a part that it could not write, on its output.
SPOKEN_REPORT = "[part report] "


@dataclass(frozen=True)
class RankFailure:
    """Why a rank ended: `status` is oom, not_available or error; `unix_s` tells which failure came first."""

    rank: int
    status: str
    message: str
    unix_s: float


@dataclass(frozen=True)
class Exchange:
    folder: Path

    @property
    def cell_file(self) -> Path:
        return self.folder / "cell.json"

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """What every part is told, where the ranks are started by processes of their own."""
        write_json(self.folder / "launch-plan.json", dict(plan))

    def read_plan(self) -> dict[str, Any]:
        return json.loads((self.folder / "launch-plan.json").read_text(encoding="utf-8"))

    def write_part_report(self, part: int, report: Mapping[str, Any]) -> None:
        write_json(self.folder / f"part{part}.json", dict(report))

    def read_part_reports(self, num_parts: int) -> list[dict[str, Any]]:
        """Of the parts that could still give one, in their order."""
        reports = (_read(self.folder / f"part{part}.json") for part in range(num_parts))
        return [report for report in reports if report is not None]

    def mark_arrived(self, rank: int) -> None:
        (self.folder / f"rank{rank}.arrived").touch()

    def has_arrived(self, rank: int) -> bool:
        return _is_there(self.folder / f"rank{rank}.arrived")

    def mark_started(self, rank: int) -> None:
        (self.folder / f"rank{rank}.started").touch()

    def has_started(self, rank: int) -> bool:
        return _is_there(self.folder / f"rank{rank}.started")

    def write_result(self, rank: int, result: dict[str, Any]) -> None:
        write_json(self.folder / f"rank{rank}.json", result)

    def has_result(self, rank: int) -> bool:
        """Whether a rank has left what it measured: such a file is whole, and the folder is this launch's alone."""
        return _is_there(self.folder / f"rank{rank}.json")

    def has_all_results(self, num_ranks: int) -> bool:
        self.look_again()
        return all(self.has_result(rank) for rank in range(num_ranks))

    def look_again(self) -> None:
        """Have what other nodes left here seen now, before anything is concluded from its absence."""
        with contextlib.suppress(OSError):
            look_again(self.folder)

    def read_result(self, rank: int) -> dict[str, Any] | None:
        return _read(self.folder / f"rank{rank}.json")

    def write_failure(self, failure: RankFailure) -> None:
        write_json(self.folder / f"rank{failure.rank}.failed.json", asdict(failure))

    def read_failure(self, rank: int) -> RankFailure | None:
        data = _read(self.folder / f"rank{rank}.failed.json")
        return RankFailure(**data) if data else None


def _is_there(path: Path) -> bool:
    """A file system that fails for a moment (a server that is changed over, ESTALE) must not end a cell that trains."""
    try:
        return path.exists()
    except OSError:
        return False


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
