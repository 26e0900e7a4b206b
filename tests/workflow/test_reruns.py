"""What runs again, and what never does: the real workflow on two cells."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from project import Project

pytestmark = pytest.mark.slow


def trained(project: Project, *arguments: str) -> int:
    """How many training jobs a call would start."""
    run = project.snakemake("--dry-run", "tiny", *arguments)
    assert run.returncode == 0, run.output
    return run.jobs("train_cell")


def test_a_second_call_does_nothing(project: Project) -> None:
    run = project.snakemake("tiny")
    assert run.returncode == 0
    assert run.nothing_done


def test_a_deleted_record_is_measured_again_and_only_it(project: Project) -> None:
    kept = project.record("torch_plain").read_bytes()
    project.record("torch_ddp").unlink()
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert run.jobs("train_cell") == 1
    assert project.record("torch_ddp").is_file()
    assert project.record("torch_plain").read_bytes() == kept


def test_a_copy_of_the_study_with_one_more_point_trains_only_that(project: Project) -> None:
    comparisons = {"main": {"scaling": "strong", "cross": {"models": ["tiny"], "num_gpus": [1, 2]}}}
    project.write_study("more_gpus", comparisons=comparisons, frameworks={"torch_ddp": None})
    project.write_study("more_frameworks", frameworks={"torch_ddp": None, "torch_plain": None, "torch_fsdp": None})
    run = project.snakemake("more_gpus", "more_frameworks")
    assert run.returncode == 0, run.output
    assert run.jobs("train_cell") == 2
    assert project.record("torch_ddp", 2).is_file()
    assert project.record("torch_fsdp").is_file()
    assert len(project.measurements("more_gpus")) == 2


@pytest.mark.parametrize("path", ["metrics/flops.py", "papers/axonn.py", "reporting/figures.py"])
def test_an_edit_of_a_metric_a_table_or_a_plot_trains_nothing(project: Project, path: str) -> None:
    if path == "reporting/figures.py":
        project.write_study(figures=["strong_scaling"])
        assert project.snakemake("tiny").jobs("make_figure") == 1
    project.edit(
        f"scripts/{path}", "from __future__ import annotations\n", "from __future__ import annotations\n\n# edited\n"
    )
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert run.jobs("train_cell") == 0
    assert run.jobs("make_table") + run.jobs("make_figure") > 0
    assert project.snakemake("tiny").nothing_done


def test_touched_files_without_snakemakes_memory_train_nothing(project: Project) -> None:
    shutil.rmtree(project.root / ".snakemake")
    tokens = {path for path in project.root.rglob("*") if path.is_file() and "tokens" in path.parts}
    for path in sorted(project.root.rglob("*")):
        os.utime(path)
    for path in tokens:  # the newest of all
        os.utime(path)
    assert trained(project) == 0


def test_tokens_made_again_train_only_what_is_missing(project: Project) -> None:
    shutil.rmtree(project.root / "results" / "tokens")
    assert project.snakemake("tiny").nothing_done
    project.record("torch_plain").unlink()
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert (run.jobs("tokenize_corpus"), run.jobs("train_cell")) == (1, 1)


def test_a_lost_token_file_beside_its_json_keeps_no_missing_cell_from_running(project: Project) -> None:
    """The job that makes the tokens has an output that is there: Snakemake must not leave out the jobs behind it."""
    (token_file,) = project.root.glob("results/tokens/*/train.bin")
    token_file.unlink()
    assert project.snakemake("tiny").nothing_done
    project.record("torch_plain").unlink()
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert (run.jobs("tokenize_corpus"), run.jobs("train_cell")) == (1, 1)


def test_plain_snakemake_is_as_careful(project: Project) -> None:
    """Without a profile, Snakemake's own default would retrain after an edit of a rule."""
    project.edit("workflow/rules/train.smk", "exec python {SCRIPTS}", "exec  python {SCRIPTS}")
    command = [word for word in project.command("--cores", "2", "--dry-run", "tiny") if "profile" not in word]
    run = project.finish(command, 120)
    assert run.returncode == 0, run.output
    assert run.jobs("train_cell") == 0


def test_limits_and_systems_settings_train_nothing(project: Project) -> None:
    project.write_study(time_limit_minutes=77)
    project.edit("config/systems/local.yaml", "startup_timeout_s: 300", "startup_timeout_s: 301")
    assert trained(project) == 0


def test_an_edited_adaptor_marks_its_rows_and_forget_runs_exactly_those(project: Project) -> None:
    adaptor = "scripts/frameworks/torch_ddp.py"
    # Words and what only the planner asks are no other code.
    project.edit(adaptor, "from __future__ import annotations\n", "from __future__ import annotations\n\n# edited\n")
    project.edit("scripts/contracts/storage.py", "8.0 if", "16.0 if")
    assert project.snakemake("tiny").jobs("train_cell") == 0
    assert {row["code_changed"].lower() for row in project.measurements()} == {"false"}
    project.edit(adaptor, "from __future__ import annotations\n", "from __future__ import annotations\n\nMORE = 1\n")
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert (run.jobs("train_cell"), run.jobs("collect_measurements")) == (0, 1)
    changed = {row["framework"]: row["code_changed"].lower() for row in project.measurements()}
    assert changed == {"torch_ddp": "true", "torch_plain": "false"}
    assert "1 measured by other code than today's" in project.script("status.py", "tiny").output

    both = project.script("status.py", "forget", "--code-changed", "--status", "oom", "tiny")
    assert "0 records of tiny set aside" in both.output
    forgotten = project.script("status.py", "forget", "--code-changed", "tiny")
    assert forgotten.returncode == 0, forgotten.output
    run = project.snakemake("tiny")
    assert run.jobs("train_cell") == 1, run.output
    assert {row["code_changed"].lower() for row in project.measurements()} == {"false"}
    (kept,) = project.record("torch_ddp").parent.glob("record.forgotten-*.json")
    assert json.loads(kept.read_text())["status"] == "ok"


def test_a_bumped_version_gives_new_cells_beside_the_old(project: Project) -> None:
    project.edit("scripts/frameworks/torch_ddp.py", "version=1", "version=2")
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert run.jobs("train_cell") == 1
    assert len(list(project.root.glob("results/local/cells/torch_ddp/tiny/1gpu/*/repeat1/record.json"))) == 2
    project.edit("scripts/frameworks/torch_ddp.py", "version=2", "version=1")
    assert trained(project) == 0


def test_a_removed_row_leaves_the_record_and_the_table(project: Project) -> None:
    project.write_study(frameworks={"torch_ddp": None})
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert run.jobs("train_cell") == 0
    assert [row["framework"] for row in project.measurements()] == ["torch_ddp"]
    assert project.record("torch_plain").is_file()


def test_a_mistake_in_a_study_says_so_and_changes_nothing(project: Project) -> None:
    project.write_study(reapeats=2)
    before = {path: path.stat().st_mtime_ns for path in (project.root / "results").rglob("*")}
    run = project.snakemake("tiny")
    assert run.returncode != 0
    assert "config/studies/tiny.yaml: top level: unknown key 'reapeats' (did you mean 'repeats'?" in run.output
    assert "Traceback" not in run.output and "explained" not in run.output and "WorkflowError" not in run.output
    assert {path: path.stat().st_mtime_ns for path in (project.root / "results").rglob("*")} == before


def test_a_broken_study_does_not_stop_another(project: Project) -> None:
    (project.root / "config/studies/broken.yaml").write_text("title: [")
    assert project.snakemake("tiny").nothing_done


def test_another_label_of_the_same_text_trains_nothing(fresh_project: Project) -> None:
    """The label is in the tokens' path and not in the cell: the record must neither be made again nor be deleted."""
    (fresh_project.root / "mytexts").mkdir()
    (fresh_project.root / "mytexts" / "train.txt").write_text("Some words of a text, over and over again.\n" * 200)
    fresh_project.write_study(frameworks={"torch_plain": None}, corpus={"path": "mytexts", "name": "one"})
    assert fresh_project.snakemake("tiny").returncode == 0
    record = fresh_project.record("torch_plain")
    before = record.read_bytes()
    fresh_project.write_study(frameworks={"torch_plain": None}, corpus={"path": "mytexts", "name": "another"})
    run = fresh_project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert run.jobs("train_cell") == 0
    assert record.read_bytes() == before


def test_an_edited_training_rule_trains_nothing(project: Project) -> None:
    rule = "workflow/rules/train.smk"
    project.edit(rule, 'tokens=lambda wildcards: call.cell_value(wildcards, "tokens"),', 'tokens="elsewhere", more=1,')
    before = {path: path.read_bytes() for path in project.records()}
    run = project.snakemake("tiny")
    assert run.jobs("train_cell") == 0, run.output
    assert {path: path.read_bytes() for path in project.records()} == before


@pytest.mark.parametrize("name", ["tables/strong_scaling.md", "tables/strong_scaling.tex"])
def test_a_format_that_a_killed_call_left_out_is_made(project: Project, name: str) -> None:
    (project.root / "results" / "local" / "tiny" / name).unlink()
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert (run.jobs("make_table"), run.jobs("train_cell")) == (1, 0)
    assert (project.root / "results" / "local" / "tiny" / name).is_file()


def remade(project: Project) -> tuple[int, int, int]:
    """Jobs of a call that trains nothing, after which another call finds nothing to do."""
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert run.nothing_done or project.snakemake("tiny").nothing_done
    return run.jobs("train_cell"), run.jobs("collect_measurements"), run.jobs("make_table")


def test_tables_are_made_anew_for_contents_and_never_for_times(project: Project) -> None:
    record = project.record("torch_plain")
    whole = record.read_text()
    for path in project.root.rglob("*"):  # of a machine whose clock was ahead
        if path.is_file() and ".snakemake" not in path.parts:
            os.utime(path, (2e9, 2e9))
    assert remade(project) == (0, 0, 0)

    changed = json.loads(whole)
    changed["ranks"][0]["batch_end_s"][-1] += 1e-6
    record.write_text(json.dumps(changed))
    os.utime(record, (1e9, 1e9))
    assert remade(project) == (0, 1, 1)

    # Without Snakemake's memory, as in results that were copied from another checkout.
    shutil.rmtree(project.root / ".snakemake")
    assert remade(project) == (0, 0, 0)
    record.write_text(whole)
    os.utime(record, (1e9, 1e9))
    assert remade(project) == (0, 1, 1)

    project.edit("config/hardware.yaml", "V100:\n", "# edited\nV100:\n")
    os.utime(project.root / "config/hardware.yaml", (1e9, 1e9))
    # By hand in between: the rules have nothing left to do.
    assert project.script("write_outputs.py", "tiny").returncode == 0
    assert remade(project) == (0, 0, 0)


def test_tables_follow_measurements_that_a_killed_call_left(project: Project) -> None:
    """Between collecting and the tables: their sources are others than those that were noted."""
    output = project.root / "results/local/tiny/measurements.csv"
    output.write_text(output.read_text().replace(",tests,", ",Tests,"))
    assert remade(project) == (0, 1, 1)
    collect = ["--study", "tiny", "--system", "local", "--output", str(output)]
    collect += ["--made-from", str(output.parent / "made_from/measurements.json")]
    project.write_study(title="another title")
    assert project.script("collect.py", *collect).returncode == 0
    assert remade(project) == (0, 0, 1)
    assert not (project.root / "results/changes").exists()


def test_a_table_that_is_asked_for_by_its_file_says_where_it_stays_behind(project: Project) -> None:
    table = "results/local/tiny/tables/strong_scaling.md"
    assert "stays as it is" not in project.snakemake("-n", table).output
    project.write_study(title="another title")
    run = project.snakemake("-n", table)
    assert f"{table} stays as it is, though what it was made from has changed (config/studies/tiny.yaml" in run.output
    assert "ask for the study (tiny)" in run.output


def test_a_record_that_comes_back_is_in_the_tables_again(project: Project) -> None:
    """Tables of what there was without it must not pass for up to date, however old it is."""
    record = project.record("torch_plain")
    aside = record.rename(record.with_name("aside.json"))
    assert project.script("write_outputs.py", "--partial", "tiny").returncode == 0
    assert "missing" in {row["status"] for row in project.measurements()}
    aside.rename(record)
    run = project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert (run.jobs("train_cell"), run.jobs("collect_measurements")) == (0, 1)
    assert {row["status"] for row in project.measurements()} == {"ok"}
    assert project.snakemake("tiny").nothing_done
