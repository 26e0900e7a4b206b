"""Results and configuration in a folder of their own: with `--directory`, and as a module of somebody's workflow."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from project import ROOT, Project, copy_project, ended_afterwards

pytestmark = pytest.mark.slow

# Somebody's workflow, with a rule before and one after the measurements.
OUTER = """
module scaling_eval:
    snakefile: "{checkout}/Snakefile"
    config: config["scaling"]


use rule * from scaling_eval as bench_*


rule summary:
    default_target: True
    input: rules.bench_tiny.input
    output: "summary.txt"
    shell: "wc -l {{input}} > {{output}}"


onstart:
    scaling_eval.onstart()


onsuccess:
    scaling_eval.onsuccess()


onerror:
    scaling_eval.onerror()
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A checkout that nobody may write into: its configuration is not the one that is used."""
    project = copy_project(tmp_path_factory.mktemp("checkout") / "a checkout")
    shutil.rmtree(project.root / "config")
    return project


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Project]:
    """A folder with nothing but a configuration."""
    made = copy_project(tmp_path / "made")
    folder = tmp_path / "my project"
    folder.mkdir()
    (made.root / "config").rename(folder / "config")
    shutil.rmtree(made.root)
    project = Project(folder)
    with ended_afterwards(project):
        yield project


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_a_dry_run_with_directory_uses_that_folder_s_configuration(checkout: Project, elsewhere: Project) -> None:
    before = files_of(checkout.root)
    elsewhere.write_yaml("config/config.yaml", {"system": "local", "studies": ["tiny"]})
    run = checkout.snakemake("--directory", str(elsewhere.root), "--dry-run", "--printshellcmds")
    assert run.returncode == 0, run.output
    assert (run.jobs("train_cell"), run.jobs("tokenize_corpus"), run.jobs("make_table")) == (2, 1, 1)
    # The checkout is another folder, and its name has a space.
    assert f"exec python '{checkout.root}/scripts'/launch.py --system local" in run.output
    assert "tiny: 2 of 2 cells to measure on local" in run.output
    assert files_of(checkout.root) == before


def test_a_mistake_in_that_folder_s_study_is_told(checkout: Project, elsewhere: Project) -> None:
    elsewhere.write_study(reapeats=2)
    run = checkout.snakemake("--directory", str(elsewhere.root), "--dry-run", "tiny")
    assert run.returncode == 1
    assert "config/studies/tiny.yaml: top level: unknown key 'reapeats'" in run.output


def test_as_a_module_it_measures_for_somebody_s_workflow(checkout: Project, elsewhere: Project) -> None:
    before = files_of(checkout.root)
    # Their config/config.yaml is not ours, and neither are its keys.
    elsewhere.write_yaml("config/config.yaml", {"theirs": 1, "scaling": {"system": "local", "studies": ["tiny"]}})
    elsewhere.write_study(frameworks={"torch_plain": None}, figures=["strong_scaling"])
    (elsewhere.root / "Snakefile").write_text(
        'configfile: "config/config.yaml"\n' + OUTER.format(checkout=checkout.root)
    )
    profile = str(checkout.root / "profiles" / "local")
    command = [word.replace("profiles/local", profile) for word in elsewhere.command()]
    run = elsewhere.finish(command, 240)
    assert run.returncode == 0, run.output
    assert (elsewhere.root / "summary.txt").is_file()
    assert [row["status"] for row in elsewhere.measurements()] == ["ok"]
    assert elsewhere.table("strong_scaling")
    assert "tiny on local: 1 cells: 1 ok" in run.output or "1 cell: 1 ok" in run.output
    # Their terminal stays theirs, and nothing of this call is left behind.
    assert "Job stats:" in run.output
    assert not (elsewhere.root / "results" / "changes").exists()
    assert files_of(checkout.root) == before
    again = elsewhere.finish(command, 240)
    assert again.returncode == 0 and again.nothing_done
    by_hand = elsewhere.finish([command[0], str(checkout.root / "scripts/status.py"), "--system", "local", "tiny"], 60)
    assert "1 done" in by_hand.output


def test_the_catalogue_s_flags_name_a_profile_that_there_is() -> None:
    import yaml

    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    flags = usage["mandatory-flags"]["flags"].split()
    assert flags[0] == "--profile" and (ROOT / flags[1] / "config.yaml").is_file()
