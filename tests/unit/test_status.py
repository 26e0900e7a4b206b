"""status.py: every study is shown, and `forget` takes exactly the records that its options say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from factories import make_record
from planning.plan import Study, record_path
from records.reader import read_outcomes
from records.setting_aside import forget
from reporting.forgetting import Wanted, forget_parser, wanted_from
from reporting.status_report import show_status
from studies import comparison, expand, study_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def study() -> Study:
    return expand(
        study_config(
            frameworks={"torch_ddp": None, "torch_fsdp": None},
            comparisons=comparison("strong", [("small", 1), ("small", 2)]),
        )
    )


def write_records(study: Study, results: Path, busy: int) -> list[str]:
    """A record of every cell; during that of the cell `busy` others used half of the cores. Returns the cells' ids."""
    for number, planned in enumerate(study.planned):
        record: dict[str, Any] = json.loads(
            json.dumps(make_record(planned.cell, planned.repeat, system=study.system.name))
        )
        launch = record["launch"]
        launch["others_cpu_s"] = launch["wall_s"] * launch["cpu_cores"] * (0.5 if number == busy else 0.01)
        path = record_path(results, study.system.name, planned)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(record))
    return [planned.cell.cell_id for planned in study.planned]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(busy_host=True), [1]),
        (Wanted(frameworks=("torch_fsdp",)), [2, 3]),
        (Wanted(frameworks=("torch_fsdp",), busy_host=True), []),
        (Wanted(frameworks=("torch_ddp",), busy_host=True, statuses=("ok",)), [1]),
        (Wanted(statuses=("oom",)), []),
        (Wanted(frameworks=("torch_ddp", "torch_fsdp")), [0, 1, 2, 3]),
    ],
)
def test_forget_takes_what_meets_every_option(
    study: Study, tmp_path: Path, wanted: Wanted, expected: list[int]
) -> None:
    ids = write_records(study, tmp_path, busy=1)
    outcomes = read_outcomes(study, tmp_path)
    assert [outcome.status for outcome in outcomes.values()] == ["ok"] * 4, outcomes
    moved = forget(study, outcomes, tmp_path, wanted.is_met)
    assert sorted(path.parent.parent.name for path in moved) == sorted(ids[number] for number in expected)


def test_forget_by_cell_takes_the_ids_or_what_they_begin_with(study: Study, tmp_path: Path) -> None:
    ids = write_records(study, tmp_path, busy=1)
    outcomes = read_outcomes(study, tmp_path)
    chosen = Wanted(cells=(ids[2], ids[3][:10]))
    chosen.check(study)
    moved = forget(study, outcomes, tmp_path, chosen.is_met)
    assert sorted(path.parent.parent.name for path in moved) == sorted(ids[2:4])


def test_a_cell_or_framework_of_another_study_is_refused(study: Study) -> None:
    with pytest.raises(ConfigError, match=r"no framework 'torch_dpd' \(did you mean 'torch_ddp'"):
        Wanted(frameworks=("torch_dpd",)).check(study)
    with pytest.raises(ConfigError, match=r"no cell .zz.: status\.py"):
        Wanted(cells=("zz",)).check(study)


def test_nothing_to_say_which_records_is_refused() -> None:
    with pytest.raises(ConfigError, match="--busy-host, --cell, --framework"):
        wanted_from(forget_parser().parse_args(["demo"]))


def test_every_study_is_read_and_a_broken_one_takes_no_other_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("envs", "workflow", "corpora", "reference"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "config/studies").mkdir(parents=True)
    for name in ("config.yaml", "models.yaml", "hardware.yaml", "systems"):
        (tmp_path / "config" / name).symlink_to(ROOT / "config" / name)
    for name in ("first", "second"):
        text = (ROOT / "config/studies/demo.yaml").read_text()
        (tmp_path / f"config/studies/{name}.yaml").write_text(text)
    (tmp_path / "config/studies/broken.yaml").write_text("title: [")
    show_status([], "local", tmp_path, None, sys.stdout)
    shown = capsys.readouterr()
    assert [line.partition(" ")[0] for line in shown.out.splitlines()] == ["first", "second"]
    (told,) = shown.err.splitlines()
    assert told.startswith("broken: left out: config/studies/broken.yaml: line 1: is not valid YAML")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """`status.py | head -1` ended with `Broken pipe` behind the line."""
    studies = ["axonn_weak_scaling", "axonn_strong_scaling", "--system", "example-summit-like"]
    command = [sys.executable, str(ROOT / "scripts" / "status.py"), *studies]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as shown:
        assert shown.stdout and shown.stderr
        assert shown.stdout.readline().startswith("framework")
        shown.stdout.close()
        # Where a squeue is installed and no Slurm is there, it says so first.
        said = shown.stderr.read()
        assert "Broken pipe" not in said and "Traceback" not in said
    assert shown.returncode == 0
