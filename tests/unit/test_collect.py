"""One record that cannot be used costs no other row: collect.py, write_outputs.py and status.py on made-up records."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from factories import make_record
from metrics.columns import read_measurements
from planning.plan import PlannedCell, record_path
from planning.studies import load_study
from project_copy import copy_project_files

ROOT = Path(__file__).resolve().parents[2]
MODEL = {"num_layers": 2, "hidden_size": 8, "num_heads": 2, "seq_length": 8, "vocab_size": 50304, "source": "tests"}
STUDY = {
    "title": "tests",
    "paper": "axonn",
    "tables": ["strong_scaling"],
    "frameworks": {"torch_ddp": None, "torch_plain": None, "torch_fsdp": None},
    "global_batch_size": 2,
    "comparisons": {"main": {"scaling": "strong", "cross": {"models": ["small"], "num_gpus": [1]}}},
}


@dataclass(frozen=True)
class Results:
    """A copy of the project with a record of every cell of the study `few`: three frameworks on one process."""

    root: Path
    planned: dict[str, PlannedCell]

    def path(self, framework: str) -> Path:
        return record_path(self.root / "results", "local", self.planned[framework])

    def change(self, framework: str, **changes: Any) -> None:
        record = json.loads(self.path(framework).read_text())
        self.path(framework).write_text(json.dumps(record | changes))

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, f"scripts/{script}", *arguments]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=120)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def collect(self) -> subprocess.CompletedProcess[str]:
        return self.run("collect.py", "--study", "few", "--system", "local", "--output", "measurements.csv")

    def rows(self, path: str = "measurements.csv") -> dict[str, dict[str, str]]:
        with (self.root / path).open(newline="") as file:
            return {row["framework"]: row for row in csv.DictReader(file)}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    root = copy_project_files(ROOT, tmp_path / "project")
    models = yaml.safe_load((root / "config" / "models.yaml").read_text())
    (root / "config" / "models.yaml").write_text(yaml.safe_dump({**models, "small": MODEL}))
    (root / "config" / "studies" / "few.yaml").write_text(yaml.safe_dump(STUDY))
    study = load_study("few", "local", root)
    made = Results(root, {planned.cell.framework: planned for planned in study.planned})
    for planned in study.planned:
        path = record_path(root / "results", "local", planned)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(make_record(planned.cell)))
    return made


def test_a_damaged_record_costs_no_other_row(results: Results) -> None:
    results.path("torch_ddp").write_text('{"launch": {"wall_s": 1e999}}')
    done = results.collect()
    assert done.returncode == 1
    assert "set aside, the next call measures the cell again" in done.stderr
    rows = results.rows()
    assert {name: row["status"] for name, row in rows.items()} == {
        "torch_ddp": "missing",
        "torch_plain": "ok",
        "torch_fsdp": "ok",
    }
    assert rows["torch_ddp"]["kind"] == "corrupt_record"
    assert float(rows["torch_plain"]["batch_time_s"]) == pytest.approx(1.0)
    folder = results.path("torch_ddp").parent
    assert len(list(folder.glob("record.damaged-*.json"))) == 1
    # It is missing now, as any other that has not run: nothing is set aside a second time.
    again = results.collect()
    assert (again.returncode, again.stderr) == (0, "")
    assert results.rows()["torch_ddp"]["kind"] == "corrupt_record"
    assert len(list(folder.glob("record.damaged-*.json"))) == 1


def test_a_record_that_cannot_be_read_costs_no_other_row(results: Results) -> None:
    results.path("torch_ddp").unlink()
    results.path("torch_ddp").mkdir()
    done = results.collect()
    assert done.returncode == 1
    assert "it stays" in done.stderr
    assert [row["kind"] for row in results.rows().values()].count("unreadable_record") == 1
    assert [row["status"] for row in results.rows().values()].count("ok") == 2


def test_a_report_of_what_there_is_sets_the_damaged_aside_too(results: Results) -> None:
    """Else a call that writes only what there is would pass for up to date with a record that does not count."""
    results.path("torch_fsdp").write_text("{")
    done = results.run("write_outputs.py", "few", "--partial")
    assert done.returncode == 0, done.stderr
    rows = results.rows("results/local/few/measurements.csv")
    assert [rows[name]["status"] for name in ("torch_ddp", "torch_plain", "torch_fsdp")] == ["ok", "ok", "missing"]
    assert not results.path("torch_fsdp").exists()
    table = (results.root / "results/local/few/tables/strong_scaling.md").read_text()
    assert "| PyTorch |" in table


def test_a_clock_that_was_set_back_gives_no_negative_duration(results: Results) -> None:
    results.change("torch_ddp", started_at="2026-11-29T12:00:00+00:00", finished_at="2026-11-29T11:00:00+00:00")
    done = results.run("status.py", "few", "--csv", "status.csv")
    assert done.returncode == 0, done.stderr
    row = results.rows("status.csv")["torch_ddp"]
    assert (row["status"], row["duration_s"], row["gpu_hours"]) == ("ok", "", "")
    assert results.rows("status.csv")["torch_plain"]["duration_s"] == "300"


def test_no_text_takes_a_row_with_it(results: Results) -> None:
    """A reason is what some program printed, such as a progress bar; JSON can hold half a character."""
    results.path("torch_ddp").unlink()
    facts = {"kind": "crash", "rank": 0, "last_lines": [], "at": "", "host": "", "job_id": None}
    failure = json.dumps({**facts, "reason": 'rank 0: a\rb\r\nc\0d";,\ne\ud800f'})
    (results.path("torch_ddp").parent / "failure.json").write_text(failure)
    assert results.collect().returncode == 0
    rows = read_measurements(results.root / "measurements.csv").set_index("framework")
    assert rows["status"].to_dict() == {"torch_ddp": "missing", "torch_plain": "ok", "torch_fsdp": "ok"}
    assert rows["reason"]["torch_ddp"] == 'rank 0: a\nb\nc\\0d";,\ne\\ud800f'
