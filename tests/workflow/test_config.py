"""config/config.yaml is read by the project's own strict reader, and the command line overrides it."""

from __future__ import annotations

from typing import Any

import pytest

from project import ROOT, Project

pytestmark = pytest.mark.slow

NOTHING = ROOT / "tests" / "data" / "nothing.py"
TWICE = "system: local\nsystem: nowhere\nstudies: [tiny]\n"
EXPRESSION = "__use_yte__: true\nsystem: ?'lo' + 'cal'\nstudies: [tiny]\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TWICE, "config/config.yaml: line 2: key 'system' is given twice"),
        (EXPRESSION, "config/config.yaml: top level: unknown key '__use_yte__' (known: system, studies)"),
    ],
)
def test_a_mistake_in_it_is_one_sentence(fresh_project: Project, text: str, says: str) -> None:
    (fresh_project.root / "config" / "config.yaml").write_text(text)
    run = fresh_project.snakemake("-n")
    assert run.returncode == 1
    assert says in run.output
    assert "Traceback" not in run.output and 'File "' not in run.output and " in explained" not in run.output
    assert not (fresh_project.root / "results").exists()


def test_the_command_line_is_checked_as_the_file_is(fresh_project: Project) -> None:
    run = fresh_project.snakemake("-n", "--config", "studies=['tiny']")
    assert run.returncode == 0, run.output
    assert run.jobs("train_cell") == 2
    run = fresh_project.snakemake("-n", "--config", "sistem=local")
    assert run.returncode == 1
    assert "--config or --configfile: top level: unknown key 'sistem' (did you mean 'system'?" in run.output


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"tables": ["weak_scaling"]},
            "tables: weak_scaling shows comparisons whose scaling is weak_model or weak_bat",
        ),
        (
            {"global_batch_size": 10_000},
            "11 batches of 10000 sequences of 8 tokens (tiny) need 880,002 tokens",
        ),
        ({"reference": "wrong"}, "reference: reference/wrong.csv: no column paper"),
        (
            {"paper": "parity", "tables": ["parity"], "frameworks": {"torch_ddp": None}},
            "frameworks: the table parity compares losses with those of torch_plain on 1 GPU, which is not among them",
        ),
        ({"frameworks": {"open": None}}, "frameworks.open: envs/open.txt: line 1: 'numpy' leaves the version open"),
    ],
    ids=["table", "tokens", "reference", "parity", "environment"],
)
def test_what_could_not_be_used_is_told_before_anything_trains(
    fresh_project: Project, changes: dict[str, Any], says: str
) -> None:
    (fresh_project.root / "reference" / "wrong.csv").write_text("framework\naxonn\n")
    (fresh_project.root / "envs" / "open.txt").write_text("numpy\n")
    adaptor = NOTHING.read_text().replace('environment="nothing"', 'environment="open"')
    (fresh_project.root / "scripts" / "frameworks" / "open.py").write_text(adaptor)
    fresh_project.write_study(**changes)
    run = fresh_project.snakemake("-n", "tiny")
    assert run.returncode == 1
    assert f"config/studies/tiny.yaml: {says}" in run.output
    assert "Traceback" not in run.output
