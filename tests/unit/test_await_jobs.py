"""Waiting for jobs of an earlier call. What squeue says is made up here; tests/slurm waits for real jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.slurm import awaiting
from launcher.slurm.asking import QueueError
from launcher.slurm.queue import SlurmJob
from launcher.verdicts import Failure, clear_former_launch, write_failure


def job(state: str) -> SlurmJob:
    return SlurmJob("7", state, "", "n1", "", "", "")


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """Waits for job 7, whose record lies in tmp_path; each answer is what squeue lists, or that it fails.

    A record may come as late as the look after the next.
    """

    def wait(
        *answers: list[SlurmJob] | QueueError,
        asleep: Callable[[], object] = lambda: None,
        jobs: tuple[str, ...] = ("7",),
    ) -> list[str]:
        left = list(answers)
        records = dict.fromkeys(jobs, tmp_path / "record.json")

        def own_jobs() -> list[SlurmJob]:
            answer = left.pop(0)
            if isinstance(answer, QueueError):
                raise answer
            return answer

        monkeypatch.setattr(awaiting, "own_jobs", own_jobs)
        monkeypatch.setattr(awaiting, "find_job", lambda job_id: None)
        failed = awaiting.await_jobs(records, 10.0, 10.0, lambda seconds: asleep())
        assert not left
        return failed

    return wait


def test_a_controller_that_does_not_answer_has_lost_no_job(wait: Callable[..., list[str]], tmp_path: Path) -> None:
    def write() -> None:
        (tmp_path / "record.json").touch()

    assert wait([job("PENDING")], QueueError("restarting"), [job("RUNNING")], [job("COMPLETED")], asleep=write) == []


def test_a_record_may_be_seen_late(wait: Callable[..., list[str]], tmp_path: Path) -> None:
    clear_former_launch(tmp_path, "7")
    assert wait([], [], asleep=(tmp_path / "record.json").touch) == []


def test_a_job_without_a_record_is_told_with_the_launchers_last_word(
    wait: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    naps = []
    write_failure(tmp_path, Failure("crash", "rank 0 had enough", 0, (), "", "n1", "7"))
    assert wait([job("FAILED")], asleep=lambda: naps.append(1)) == ["7"]
    assert naps == []  # nothing more will come
    assert "job 7: crash: rank 0 had enough" in capsys.readouterr().err


def test_a_job_that_is_gone_without_a_word_has_failed(wait: Callable[..., list[str]], tmp_path: Path) -> None:
    assert wait([], []) == ["7"]


def test_jobs_that_are_gone_together_are_waited_for_together(wait: Callable[..., list[str]], tmp_path: Path) -> None:
    assert wait([], [], jobs=("7", "8", "9")) == ["7", "8", "9"]
