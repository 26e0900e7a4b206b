"""What a person sees of a run: a line a cell, then what came of it. The adaptor that fails is a test double."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest

from project import Project, Run, ended_afterwards

pytestmark = pytest.mark.slow

FAULTY = '''"""Test double: torch_plain that fails in its first batch."""

from frameworks import torch_plain
from frameworks.torch_plain import FRAMEWORK, unsupported_reason


def create_engine(job):
    engine = torch_plain.create_engine(job)
    engine.step = fail
    return engine


def fail(batch):
    print("the last line before the end", flush=True)
    raise RuntimeError("this rank had enough")
'''
REASONS = ("reason:", "Missing output files", "Building DAG", "Select jobs", "Job stats", "CalledProcessError")


def rows(run: Run) -> list[list[str]]:
    """The lines of cells, by their words."""
    return [line.split() for line in run.output.splitlines() if re.match(r" *\d+/\d+ ", line)]


@pytest.fixture(scope="module")
def failed_run(finished_project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Run]]:
    """A call that finds one cell measured, measures one and fails in one."""
    folder = tmp_path_factory.mktemp("terminal") / "project"
    project = Project(shutil.copytree(finished_project.root, folder, symlinks=True))
    (project.root / "scripts/frameworks/faulty.py").write_text(FAULTY)
    project.record("torch_ddp").unlink()
    project.write_study(frameworks={"torch_plain": None, "torch_ddp": None, "faulty": None})
    with ended_afterwards(project):
        yield project, project.snakemake("tiny")


def test_a_cell_that_ends_well_has_one_line(failed_run: tuple[Project, Run]) -> None:
    project, run = failed_run
    (row,) = [row for row in rows(run) if "torch_ddp" in row]
    assert row[1:6] == ["torch_ddp", "tiny", "1", "data", "1"]
    (measured,) = [row for row in project.measurements() if row["framework"] == "torch_ddp"]
    assert f"{float(measured['batch_time_s']):#.4g} s" in " ".join(row)
    assert {row[0] for row in rows(run)} == {"1/2", "2/2"}
    assert len(rows(run)) == 2


def test_a_failure_is_told_once_with_its_reason_and_its_log(failed_run: tuple[Project, Run]) -> None:
    project, run = failed_run
    assert run.returncode == 1
    assert run.output.count("crash: rank 0: RuntimeError: this rank had enough") == 1
    assert run.output.count("the last line before the end") == 1
    (log,) = re.findall(r"^    log: (\S+)$", run.output, re.MULTILINE)
    assert "this rank had enough" in (project.root / log).read_text()


def test_snakemakes_reasons_are_in_its_log_and_not_on_the_terminal(failed_run: tuple[Project, Run]) -> None:
    run = failed_run[1]
    assert not [words for words in REASONS if words in run.output]
    assert not [words for words in REASONS if words not in run.log]
    assert "\r" not in run.output and "\x1b" not in run.output


def test_the_last_lines_say_what_is_measured_and_where(failed_run: tuple[Project, Run]) -> None:
    lines = failed_run[1].output.splitlines()
    begin = lines.index("tiny on local: 3 cells: 2 ok, 1 missing (crash)")
    assert re.match(
        r"main: tiny on 1 process: torch_\w+ is \d.\d\d times as fast as torch_\w+; one repeat does not tell whether "
        r"that is noise \(faulty not compared\)$",
        lines[begin + 1],
    )
    assert lines[begin + 2] == "open tables/strong_scaling.md in results/local/tiny"
    assert "1 of 3 cells are missing" in lines[begin + 3]


def test_verbose_shows_snakemakes_messages_and_the_lines(project: Project) -> None:
    project.record("torch_plain").unlink()
    run = project.snakemake("tiny", "--verbose")
    assert run.returncode == 0
    assert not [words for words in REASONS[:-1] if words not in run.output]
    assert len(rows(run)) == 1
    assert "tiny on local: 2 cells: 2 ok" in run.output.splitlines()


def test_a_dry_run_ends_with_snakemakes_list_of_jobs(project: Project) -> None:
    project.record("torch_plain").unlink()
    run = project.snakemake("tiny", "-n")
    assert run.returncode == 0
    plan, stats, jobs = run.output.partition("Job stats:")
    assert stats and "torch_plain, tiny, 1 process, " in plan
    assert run.jobs("train_cell") == 1 and jobs.count("train_cell") == 1
    assert "reason" not in run.output.lower()


def test_snakemakes_other_commands_speak_as_ever(project: Project) -> None:
    assert "Unlocked working directory." in project.snakemake("--unlock").output
    summary = project.snakemake("tiny", "--summary")
    assert summary.returncode == 0 and "measurements.csv" in summary.output
