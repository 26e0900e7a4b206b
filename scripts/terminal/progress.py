"""How far a call is: from what Snakemake tells of its jobs to lines for the terminal, without Snakemake itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from terminal.cell_endings import CellEnd, batch_of, ending_with_record, ending_without_record, is_running
from terminal.run_steps import LONG_STEPS, OUTPUT_NOUNS, outputs_text, step_words
from terminal.short_words import counted_words, time_text
from terminal.shown_cells import Columns, Key, ShownCell, cell_of_job, columns_for, with_short_layouts
from terminal.time_left import time_left_text
from workloads.training.loop import NUM_BATCHES

CELL_RULE = "train_cell"


@dataclass(frozen=True)
class Job:
    """A job that runs, or waits in Slurm's queue. began_s: on the clock that `Progress` is given.

    cell: None where it is a step around them. log: its log, empty where it has none.
    """

    rule: str
    wildcards: Mapping[str, Any]
    log: str
    is_local: bool
    began_s: float
    began: datetime
    cell: ShownCell | None = None


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Progress:
    """The state of a call. Its methods take an event each, and return the lines that it gives.

    clock: seconds that only grow. width: of the terminal, None where there is none.
    """

    clock: Callable[[], float]
    width: int | None = None
    now: Callable[[], datetime] = utc_now
    cells: dict[Key, ShownCell] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    count: int = 0
    columns: Columns | None = None
    has_head: bool = False
    jobs: dict[int, Job] = field(default_factory=dict)
    ended: dict[Key, CellEnd] = field(default_factory=dict)
    took: list[tuple[ShownCell, float]] = field(default_factory=list)
    failed_steps: int = 0
    outputs: dict[str, int] = field(default_factory=dict)
    outputs_made: int = 0
    first_output_s: float | None = None

    def announce(self, title: str, cells: Sequence[ShownCell]) -> None:
        """Take the cells of a study that this call is about, before any job begins."""
        short, shared = with_short_layouts(cells)
        self.cells |= {cell.key: cell for cell in short}
        if cells:
            self.notes.append(f"{title}, all with {shared}" if shared and len(cells) > 1 else title)

    def begin(self, jobs: Mapping[str, int]) -> list[str]:
        """Take the number of jobs that Snakemake will start, by rule."""
        self.count = jobs.get(CELL_RULE, 0)
        self.outputs = {rule: jobs[rule] for rule in OUTPUT_NOUNS if jobs.get(rule)}
        return list(self.notes) if self.count else []

    def start(self, job_id: int, rule: str, wildcards: Mapping[str, Any], log: str, is_local: bool) -> list[str]:
        """Take a job that begins, or on a cluster is submitted."""
        cell, lines = None, []
        if rule == CELL_RULE:
            key = (wildcards["cell_id"], int(wildcards["repeat"]))
            cell = self.cells.get(key) or cell_of_job(wildcards, log)
            self.cells[key] = cell
            if not self.has_head:
                lines.append(self._columns().head())
                self.has_head = True
        self.jobs[job_id] = Job(rule, wildcards, log, is_local, self.clock(), self.now(), cell)
        words = step_words(rule, wildcards)
        return [*lines, f"{words[0]} (log: {log})"] if words and rule in LONG_STEPS else lines

    def finish(self, job_id: int) -> list[str]:
        """Take a job that ended well."""
        job = self.jobs.pop(job_id, None)
        if job is None:
            return []
        if job.cell is None:
            words = step_words(job.rule, job.wildcards)
            if job.rule in self.outputs:
                return self._count_output(job)
            return [f"{words[1]}, {time_text(self.clock() - job.began_s)}"] if words and words[1] else []
        return self._end_cell(job, job.cell, ending_with_record(job.cell.folder))

    def fail(self, job_id: int, why: str = "") -> list[str]:
        """Take a job that failed. why: what its executor says, where it says something."""
        job = self.jobs.pop(job_id, None)
        if job is None:
            return []
        if job.cell is not None:
            return self._end_cell(job, job.cell, ending_without_record(job.cell.folder, job.began, why))
        self.failed_steps += 1
        words = step_words(job.rule, job.wildcards)
        what = words[0] if words else f"a job of rule {job.rule}"
        lines = [f"{what}: failed after {time_text(self.clock() - job.began_s)}"]
        lines += [f"    {why}"] if why else []
        return lines + ([f"    log: {job.log}"] if job.log else [])

    @property
    def has_failed(self) -> bool:
        return bool(self.failed_steps) or not all(ending.has_record for ending in self.ended.values())

    def has_told(self, key: Key | None, message: str) -> bool:
        """Return whether the message gives the reason that stood below the cell's line. Slurm may know a better one by
        the end of the call.
        """
        ending = self.ended.get(key) if key else None
        return ending is not None and bool(ending.reason) and ending.reason in message

    def status(self) -> str:
        """Return what runs now in a line; empty where nothing does."""
        running = [job for job in self.jobs.values() if job.cell]
        if any(not job.is_local for job in running):
            return self._queue_status(running)
        for job in running:
            assert job.cell
            spent = self.clock() - job.began_s
            batch = batch_of(Path(job.log), job.began)
            at = f"batch {batch} of {NUM_BATCHES}" if batch else "running"
            number = self._columns().number(len(self.ended) + 1)
            return self._columns().line(number, job.cell, at, time_text(spent), self._left())
        for job in self.jobs.values():
            words = step_words(job.rule, job.wildcards)
            if words:
                return f"{words[0]}, {time_text(self.clock() - job.began_s)}"
        return ""

    def _queue_status(self, jobs: Iterable[Job]) -> str:
        """Of a cluster one knows which jobs have begun, and not how long the others will wait."""
        submitted = [job for job in jobs if job.cell]
        begun = sum(is_running(job.cell.folder, job.began) for job in submitted if job.cell)
        return (
            f"{len(self.ended)} of {counted_words(self.count, 'cell')} done, {begun} running, "
            f"{len(submitted) - begun} waiting in Slurm's queue"
        )

    def _count_output(self, job: Job) -> list[str]:
        """Say what was made, in one line, when the last of it is there."""
        if self.first_output_s is None:
            self.first_output_s = job.began_s
        self.outputs_made += 1
        if self.outputs_made < sum(self.outputs.values()):
            return []
        return [f"{outputs_text(self.outputs)}, {time_text(self.clock() - self.first_output_s)}"]

    def _end_cell(self, job: Job, cell: ShownCell, ending: CellEnd) -> list[str]:
        self.ended[cell.key] = ending
        # A cell that is stopped early says nothing about the others.
        if ending.is_ok and ending.took_s is not None:
            self.took.append((cell, ending.took_s))
        # On a cluster a job's own time is mostly that in the queue.
        took_s = ending.took_s if ending.took_s is not None or not job.is_local else self.clock() - job.began_s
        number = self._columns().number(len(self.ended))
        took = "" if took_s is None else time_text(took_s)
        line = self._columns().line(number, cell, ending.result, took, self._left() if job.is_local else "")
        return [line, *(f"    {detail}" for detail in ending.details)]

    def _left(self) -> str:
        """Cells run one after another where they run on this machine."""
        running = {job.cell: self.clock() - job.began_s for job in self.jobs.values() if job.cell}
        begun = {cell.key for cell in running} | set(self.ended)
        return time_left_text([cell for key, cell in self.cells.items() if key not in begun], running, self.took)

    def _columns(self) -> Columns:
        if self.columns is None:
            self.columns = columns_for(self.cells.values(), self.count, self.width)
        return self.columns
