"""config/config.yaml is read by the project's own strict reader, and the command line overrides it."""

from __future__ import annotations

import pytest

from project import Project

pytestmark = pytest.mark.slow

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
