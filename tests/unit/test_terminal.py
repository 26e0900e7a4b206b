"""What a call says on the terminal, from events and records alone."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from factories import make_cell, make_record, measured_study
from launcher.verdicts import Failure, write_failure
from planning.plan import record_path
from studies import expand, study_config
from terminal.cell_endings import batch_of, ending_with_record, ending_without_record, is_running
from terminal.progress import Progress
from terminal.screen import CLEAR, Screen
from terminal.short_words import time_text
from terminal.shown_cells import ShownCell, cells_to_show, columns_for, with_short_layouts
from terminal.snakemake_words import OURS, Situation, is_needed, is_shown
from terminal.time_left import time_left_text

BEGAN = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def shown(framework: str = "torch_ddp", repeat: int = 1, folder: Path = Path(), **changes: Any) -> ShownCell:
    values = {"cell_id": f"id of {framework}", "model": "tiny", "num_gpus": 2, "unit": "process", "layout": "data 2"}
    return ShownCell(**{**values, "time_limit_s": 600.0, **changes}, framework=framework, repeat=repeat, folder=folder)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> Progress:
    return Progress(clock, now=lambda: BEGAN + timedelta(seconds=clock.seconds))


def wildcards_of(cell: ShownCell) -> dict[str, Any]:
    return {
        "cell_id": cell.cell_id, "repeat": str(cell.repeat), "framework": cell.framework, "model": cell.model,
        "num_gpus": "2", "system": "local",
    }  # fmt: skip


def start(progress: Progress, job_id: int, cell: ShownCell, is_local: bool = True) -> list[str]:
    log = str(cell.folder / "log.txt")
    return progress.start(job_id, "train_cell", wildcards_of(cell), log, is_local)


def leave_record(folder: Path, **changes: Any) -> None:
    record = make_record(make_cell("torch_ddp", 2), batch_times_s=0.25, **changes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text(json.dumps(record))


def leave_failure(folder: Path, at: datetime, launcher: dict[str, Any] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = ("the last line",)
    failure = Failure("crash", "rank 1: it fell", 1, lines, at.isoformat(), "host", None, launcher=launcher)
    write_failure(folder, failure)


# -- one line a cell ---------------------------------------------------------------------------------------------------


def test_a_cells_line_says_which_what_how_long_and_what_is_left(
    progress: Progress, clock: Clock, tmp_path: Path
) -> None:
    cells = [shown(repeat=repeat, folder=tmp_path / str(repeat)) for repeat in (1, 2, 3)]
    progress.announce("demo on local: 3 cells to measure", cells)
    assert progress.begin({"train_cell": 3}) == ["demo on local: 3 cells to measure"]
    (head,) = start(progress, 7, cells[0])
    assert head.split() == ["cell", "framework", "model", "processes", "layout", "rep.", "batch", "took", "left"]
    leave_record(cells[0].folder)
    (line,) = progress.finish(7)
    assert line.split() == ["1/3", "torch_ddp", "tiny", "2", "data", "2", "1", "0.2500", "s", "5", "min", "~10", "min"]
    assert start(progress, 8, cells[1]) == []
    leave_record(cells[1].folder)
    assert progress.finish(8)[0].endswith("5 min  ~5 min")
    start(progress, 9, cells[2])
    clock.seconds += 12
    assert progress.status().split()[:2] == ["3/3", "torch_ddp"]
    assert "running" in progress.status() and "12 s" in progress.status()
    leave_record(cells[2].folder)
    (line,) = progress.finish(9)
    assert line.endswith("0.2500 s  5 min")


def test_columns_stand_below_one_another_and_fit_a_narrow_terminal() -> None:
    cells = [
        shown(f"torch_{name}", model="demo-small", layout=f"{name} 2", repeat=3) for name in ("pipeline", "tensor")
    ]
    for width, longest in ((None, 110), (80, 80)):
        columns = columns_for(cells, 24, width)
        lines = [columns.line(columns.number(24), cell, "0.4048 s", "17 s", "~6 min") for cell in cells]
        assert len({line.index("0.4048 s") for line in lines}) == 1
        assert max(map(len, [columns.head(), *lines])) <= longest


def test_a_cell_whose_job_is_in_the_queue_is_not_this_calls(tmp_path: Path) -> None:
    planned, _ = measured_study({("a", 1): [1.0, 1.0], ("b", 1): 1.0})
    study = replace(planned, time_limit_minutes={"tiny": 30.0})
    queued = record_path(tmp_path, "local", study.planned[0])
    assert len(cells_to_show(study, tmp_path)) == 3
    left = cells_to_show(study, tmp_path, {queued})
    assert [(cell.framework, cell.repeat, cell.num_gpus, cell.unit) for cell in left] == [
        ("a", 2, 1, "process"),
        ("b", 1, 1, "process"),
    ]


def test_what_all_layouts_share_is_said_once() -> None:
    cells = [shown("a", layout="data 2, micro-batch 2"), shown("b", layout="tensor 2, micro-batch 2, schedule 1f1b")]
    short, shared = with_short_layouts(cells)
    assert ([cell.layout for cell in short], shared) == (["data 2", "tensor 2"], "micro-batch 2")
    assert with_short_layouts([shown(layout="data 2")]) == ([shown(layout="data 2")], "")
    assert with_short_layouts([]) == ([], "")


def test_what_tells_two_layouts_of_a_framework_apart_stays() -> None:
    layouts = ("data 2, micro-batch 2, zero_stage 1", "data 2, micro-batch 4, zero_stage 1")
    short, shared = with_short_layouts([shown(layout=layout) for layout in layouts])
    assert [cell.layout for cell in short] == ["data 2, micro-batch 2", "data 2, micro-batch 4"]
    assert shared == "zero_stage 1"


def test_a_cell_that_no_study_has_announced_has_a_line_too(progress: Progress, tmp_path: Path) -> None:
    assert progress.begin({"train_cell": 1}) == []
    start(progress, 1, shown(folder=tmp_path))
    leave_record(tmp_path)
    assert progress.finish(1)[0].split()[:3] == ["1/1", "torch_ddp", "tiny"]


def test_a_failure_gives_its_reason_its_last_lines_and_its_log_at_once(progress: Progress, tmp_path: Path) -> None:
    cell = shown(folder=tmp_path)
    progress.announce("one cell", [cell])
    progress.begin({"train_cell": 1})
    start(progress, 1, cell)
    assert not progress.has_failed
    leave_failure(tmp_path, BEGAN)
    line, *details = progress.fail(1)
    assert "no result" in line
    assert [detail.strip() for detail in details][:2] == ["crash: rank 1: it fell", "the last line"]
    assert details[-1].strip().startswith("log: ") and details[-1].endswith("log.txt")
    assert progress.has_failed
    assert progress.has_told(cell.key, "demo: missing: torch_ddp: crash: rank 1: it fell")
    assert not progress.has_told(cell.key, "demo: missing: torch_ddp: time_limit: Slurm ended job 3")
    assert not progress.has_told(None, "anything")


def test_steps_around_the_cells_have_a_line_each(progress: Progress, clock: Clock) -> None:
    (begun,) = progress.start(1, "make_venv", {"environment": "horovod"}, "environments/venv-horovod.log", True)
    assert begun == "installing envs/horovod.txt (log: environments/venv-horovod.log)"
    assert progress.finish(1) == []  # it says that itself
    clock.seconds += 240
    assert progress.start(2, "make_table", {"study": "demo", "table": "weak_scaling"}, "log", True) == []
    assert progress.status() == "making table weak_scaling, 0 s"
    assert progress.fail(2) == ["making table weak_scaling: failed after 0 s", "    log: log"]
    assert progress.start(3, "await_jobs_1", {}, "", True) == []
    assert progress.finish(3) == ["jobs of an earlier call have ended, 0 s"]
    assert progress.start(4, "demo", {}, "", True) == progress.finish(4) == []


def test_what_is_made_of_the_cells_is_told_in_one_line(progress: Progress, clock: Clock) -> None:
    assert progress.begin({"collect_measurements": 1, "make_table": 2, "make_figure": 1, "total": 4}) == []
    told = []
    for job_id, rule in enumerate(("collect_measurements", "make_table", "make_figure", "make_table")):
        progress.start(job_id, rule, {"study": "demo", "table": "one", "figure": "one"}, "log", True)
        clock.seconds += 3
        told.append(progress.finish(job_id))
    assert told == [[], [], [], ["made 1 measurements file, 2 tables, 1 figure, 12 s"]]


# -- records and reasons -----------------------------------------------------------------------------------------------


def test_cells_that_differ_in_their_batch_alone_can_be_told_apart(tmp_path: Path) -> None:
    points = [{"model": "small", "num_gpus": 2, "global_batch_size": size} for size in (2, 4)]
    both = {"main": {"scaling": "none", "points": points}}
    study = expand(study_config(frameworks={"torch_ddp": None}, comparisons=both))
    assert [cell.layout for cell in cells_to_show(study, tmp_path)] == [
        "data 2, micro-batch 1, batch 2",
        "data 2, micro-batch 1, batch 4",
    ]
    one = {"main": {"scaling": "none", "points": points[:1]}}
    study = expand(study_config(frameworks={"torch_ddp": None}, comparisons=one))
    assert [cell.layout for cell in cells_to_show(study, tmp_path)] == ["data 2, micro-batch 1"]


def test_the_batch_time_is_the_mean_of_the_ten_timed_batches(tmp_path: Path) -> None:
    leave_record(tmp_path)
    ending = ending_with_record(tmp_path)
    assert (ending.result, ending.took_s, ending.is_ok) == ("0.2500 s", 300.0, True)


def test_another_status_comes_with_its_reason(tmp_path: Path) -> None:
    leave_record(tmp_path, status="oom", reason="rank 0: it was too large")
    ending = ending_with_record(tmp_path)
    assert (ending.result, ending.is_ok, ending.has_record) == ("oom", False, True)
    assert ending.details[0] == "rank 0: it was too large"


@pytest.mark.parametrize("text", ["{", '{"status": "ok"}', "[]"])
def test_a_record_that_cannot_be_read_is_called_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.json").write_text(text)
    assert ending_with_record(tmp_path).result == "unreadable"


def test_a_former_failure_is_no_reason(tmp_path: Path) -> None:
    leave_failure(tmp_path, BEGAN - timedelta(hours=1))
    ending = ending_without_record(tmp_path, BEGAN)
    assert (ending.reason, ending.details[0]) == ("", "its launcher ended without saying why")
    assert ending_without_record(tmp_path, BEGAN, "the job was refused").details[0] == "the job was refused"


def test_batches_are_read_from_this_launchs_log(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    began = datetime.now(UTC) - timedelta(seconds=5)
    assert batch_of(log, began) is None
    log.write_text("[rank 0] batch 2 of 11\n[rank 1] batch 9 of 11\n[rank 0] batch 3 of 11\n[rank 0] other words\n")
    assert batch_of(log, began) == 3
    assert batch_of(log, datetime.now(UTC) + timedelta(hours=1)) is None


def test_a_long_cell_says_its_batch(progress: Progress, tmp_path: Path) -> None:
    cell = shown(folder=tmp_path)
    progress.now = lambda: datetime.now(UTC) - timedelta(seconds=5)
    progress.announce("one", [cell])
    progress.begin({"train_cell": 1})
    start(progress, 1, cell)
    (tmp_path / "log.txt").write_text("[rank 0] batch 4 of 11\n")
    assert "batch 4 of 11" in progress.status()


def test_on_a_cluster_one_hears_how_many_cells_run_and_wait(progress: Progress, tmp_path: Path) -> None:
    cells = [shown(repeat=repeat, folder=tmp_path / str(repeat)) for repeat in (1, 2, 3)]
    progress.announce("three", cells)
    progress.begin({"train_cell": 3})
    for number, cell in enumerate(cells):
        start(progress, number, cell, is_local=False)
    leave_failure(cells[1].folder, BEGAN, launcher={"pid": 1})
    assert is_running(cells[1].folder, BEGAN) and not is_running(cells[2].folder, BEGAN)
    leave_record(cells[0].folder)
    (line,) = progress.finish(0)
    assert line.endswith("0.2500 s  5 min")
    assert progress.status() == "1 of 3 cells done, 1 running, 1 waiting in Slurm's queue"


# -- what is left ------------------------------------------------------------------------------------------------------


def test_nothing_is_said_of_the_time_left_before_anything_is_measured() -> None:
    assert time_left_text([shown()], {}, []) == ""


def test_the_time_left_is_that_of_the_likest_cells() -> None:
    took = [(shown("a"), 10.0), (shown("a"), 20.0), (shown("b"), 50.0)]
    assert time_left_text([shown("a")], {}, took) == "~15 s"
    assert time_left_text([shown("b"), shown("a")], {}, took) == "~65 s"
    assert time_left_text([shown("a", cell_id="other")], {}, took) == "~15 s"
    assert time_left_text([shown("c")], {}, took) == "~27 s"
    assert time_left_text([shown("b")], {shown("a"): 5.0}, took) == "~60 s"
    assert time_left_text([], {shown("a"): 500.0}, took) == "~0 s"
    assert time_left_text([], {}, took) == ""


def test_cells_like_none_that_was_measured_count_with_their_limits() -> None:
    took = [(shown("a"), 10.0)]
    large = shown("a", cell_id="large", model="large", time_limit_s=7200.0)
    assert time_left_text([shown("a"), large], {}, took) == "<2.0 h"
    assert time_left_text([shown("c", model="large", cell_id="x", time_limit_s=None)], {}, took) == ""


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (150, "2 min"), (9000, "2.5 h")])
def test_times_are_as_exact_as_one_wants_to_know(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


# -- the screen --------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """Text that calls itself a terminal, of an unknown width."""

    def isatty(self) -> bool:
        return True


def test_without_a_terminal_there_are_whole_lines_only() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    screen.show_status("running")
    screen.write(["a line"])
    screen.clear()
    assert stream.getvalue() == "a line\n"


def test_on_a_terminal_the_status_gives_way_to_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    screen = Screen(stream)
    screen.show_status("running " * 20)
    screen.write(["a line"])
    status, line = stream.getvalue().split(CLEAR)
    assert status == ("running " * 20)[:79] + "\r"
    assert line == "a line\n"
    screen.show_status("")
    assert stream.getvalue().endswith("a line\n")


# -- Snakemake's own messages ------------------------------------------------------------------------------------------


def message(text: str, level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    record = logging.LogRecord("snakemake", level, "", 0, text, (), None)
    vars(record).update(extra)
    return record


RUNNING = Situation(stats_shown=1)
FAILED = Situation(stats_shown=1, has_failed=True)


@pytest.mark.parametrize(
    ("record", "situation", "expected"),
    [
        (message("rule train_cell", event="job_info"), RUNNING, False),
        (message("rule train_cell", event="job_info"), Situation(printshellcmds=True, stats_shown=1), True),
        (message("Building DAG of jobs..."), Situation(), False),
        (message("Building DAG of jobs..."), Situation(dryrun=True), True),
        (message("Nothing to be done (all requested files are present)."), Situation(), True),
        (message("Unlocked working directory."), Situation(), True),
        (message("Select jobs to execute..."), RUNNING, False),
        (message("Terminating processes on user request, this might take some time."), RUNNING, True),
        (message("a warning of somebody", logging.WARNING), RUNNING, True),
        (message("WorkflowError:\nno rule makes it", logging.ERROR, event="error"), RUNNING, True),
        (message("WorkflowError:\nAt least one job did not complete successfully.", logging.ERROR), FAILED, False),
        (message("WorkflowError:\nAt least one job did not complete successfully.", logging.ERROR), RUNNING, True),
        (message("Complete log(s): here"), FAILED, True),
        (message("Complete log(s): here"), RUNNING, False),
        (message("Job stats", event="run_info"), Situation(dryrun=True, stats_shown=1), False),
        (message("Job stats", event="run_info"), Situation(dryrun=True, stats_shown=2), True),
        (message("Error in rule x", logging.ERROR, event="job_error"), RUNNING, False),
        (message("Error in rule x", logging.ERROR, event="job_error"), Situation(show_failed_logs=True), True),
    ],
)
def test_of_snakemakes_messages_those_stay_that_people_need(
    record: logging.LogRecord, situation: Situation, expected: bool
) -> None:
    assert is_shown(record, situation) is expected


def test_the_exit_of_a_command_is_told_with_its_job() -> None:
    text = "RuleException:\nCalledProcessError in file \"x.smk\", line 3:\nCommand 'a' returned non-zero exit status 1."
    assert not is_shown(message(text, logging.ERROR, event="error"), RUNNING)
    other = 'RuleException:\nMissingOutputException in file "x.smk", line 3:\nMissing files after 5 seconds.'
    assert is_shown(message(other, logging.ERROR, event="error"), RUNNING)


def test_the_snakefiles_own_messages_are_marked() -> None:
    assert is_needed(message("tables made anew", **{OURS.needed: True}))
    assert not is_needed(message("tables made anew"))
