"""How a job's end is told: by the nodes' reports, by srun's words, by what Slurm says afterwards."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.placement import parts
from factories import make_cell, make_comparison, make_study, planned
from launcher import verdicts as results
from launcher.part import LaunchPlan, PartReport, silent_part
from launcher.processes import Ending
from launcher.slurm import job_endings as endings
from launcher.slurm.job_endings import with_slurms_account
from launcher.slurm.queue import Queue, SlurmJob
from launcher.starters import mpiexec, part_index, srun
from launcher.step import MEMORY_WORDS, SLURM_PREFIXES, step_ending
from launcher.verdicts import (
    Failure,
    clear_former_launch,
    judge,
    kept_failure,
    launch_facts,
    log_tail,
    read_failure,
    write_failure,
)
from planning.plan import record_path
from settings.systems import SlurmSite
from workloads.exchange import Exchange, RankFailure


def report(node: int, kind: str = "", ended: float = 0.0, threads: int = 2, others: float | None = 1.0) -> PartReport:
    settings = {"OMP_NUM_THREADS": str(threads)}
    return PartReport(
        node,
        node,
        f"n{node}",
        4,
        threads,
        settings,
        10.0 + node,
        None if others is None else others + 5.0,
        5.0,
        False,
        ended,
        kind,
        f"of node {node}",
        node,
        (),
    )


def test_the_first_node_that_failed_by_itself_is_the_cause() -> None:
    reports = [report(0, "interrupted", 1.0), report(1, "crash", 3.0), report(2, "killed", 2.0)]
    assert step_ending("srun", 1, reports, [], []) == Ending("killed", "of node 2", 2, ())


def test_a_killed_rank_comes_before_one_that_lost_its_connection() -> None:
    assert step_ending("mpiexec", 1, [report(0, "crash", 1.0), report(1, "killed", 1.1)], [], []).rank == 1


def test_all_nodes_well_is_a_good_end() -> None:
    assert step_ending("srun", 0, [report(0), report(1)], [], []) == Ending()


def test_a_node_that_could_not_report_is_named_with_slurms_words_and_leaves_the_last_lines_to_the_log() -> None:
    words = ["slurmstepd: error: *** STEP 4.0 ON n2 CANCELLED ***", "srun: error: n2: task 1: Killed"]
    ending = step_ending("srun", 137, [report(0, "interrupted")], [report(1, "killed")], words)
    assert ending.kind == "killed"
    assert ending.reason == f"node n1 ended before it could report: {words[0]}"
    assert ending.last_lines == ()  # the ranks' own lines would be hidden behind Slurm's otherwise


def test_srun_that_fails_by_itself_is_no_good_end() -> None:
    assert step_ending("srun", 1, [report(0)], [], []).reason == "srun ended with 1"


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd-n1: error: StepId=7.0 exceeded memory limit (1766531072 > 1288699904), being killed",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "srun: error: n1: task 0: Out Of Memory",
    ],
)
def test_memory_kills_are_recognised(line: str) -> None:
    assert line.startswith(SLURM_PREFIXES)
    assert any(word in line for word in MEMORY_WORDS)


def test_facts_of_several_nodes() -> None:
    facts = launch_facts([report(0, threads=2), report(1, threads=1)])
    assert facts["hosts"] == ["n0", "n1"]
    assert facts["threads_per_process"] == 1
    assert facts["wall_s"] == 11.0
    assert facts["others_cpu_s"] == 1.0
    assert launch_facts([report(0), report(1, others=None)])["others_cpu_s"] is None
    # Two parts on one node: the host's 6 s were theirs.
    assert launch_facts([report(0), replace(report(0), part=1)])["others_cpu_s"] == 0.0


def test_a_line_of_setup_that_failed_is_the_reason(tmp_path: Path) -> None:
    said = "setup of the system file failed: module load CUDA/12.6"
    ending = Ending("crash", "rank 0 ended with exit status 127", 0, ("bash: module: command not found", said))
    verdict = judge(ending, Exchange(tmp_path), make_cell("torch_ddp", 1), killed_for_memory=False)
    assert verdict.reason == f"{said}: rank 0 ended with exit status 127"


@pytest.mark.parametrize(("ended", "lines"), [(1, ("its last line",)), (0, ())])
def test_a_rank_that_failed_first_is_not_given_the_lines_of_another(
    tmp_path: Path, ended: int, lines: tuple[str, ...]
) -> None:
    """A rank that lost its connection may be met first, while the account of the cause is the earliest."""
    exchange = Exchange(tmp_path)
    exchange.write_failure(RankFailure(1, "error", "RuntimeError: this rank had enough", 10.0))
    exchange.write_failure(RankFailure(0, "error", "RuntimeError: connection closed by peer", 11.0))
    ending = Ending("crash", f"rank {ended} ended with exit status 1", ended, ("its last line",))
    verdict = judge(ending, exchange, make_cell("torch_ddp", 2), killed_for_memory=False)
    assert (verdict.rank, verdict.last_lines) == (1, lines)
    log = tmp_path / "log.txt"
    log.write_text("[rank 1] before\n[rank 0] closed\n[launcher] x\n[rank 1] the end\n[rank 10] other\n")
    assert log_tail(log, verdict.rank) == ("before", "the end")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGKILL, "oom"), (None, "oom"), (signal.SIGSEGV, ""), (signal.SIGABRT, "")]
)
def test_only_a_sigkill_or_an_unknown_one_is_a_kill_for_memory(tmp_path: Path, number: int | None, status: str) -> None:
    """The kernel counts its kills for memory on the whole host: somebody else's makes no OOM of our crash."""
    ending = Ending("killed", "rank 0 was ended", 0, signal=number)
    assert judge(ending, Exchange(tmp_path), make_cell("torch_ddp", 1), killed_for_memory=True).status == status


def test_a_node_that_could_not_report_keeps_its_place_with_what_is_known() -> None:
    job = LaunchPlan(["python"], 3, 2, "127.0.0.1", "meeting", "token", {"SITE": "1"}, cores=1)
    silent = silent_part(job, 1, "n7", 12.5)
    assert (silent.node, silent.host, silent.wall_s, silent.host_cpu_s) == (1, "n7", 12.5, None)
    assert (silent.cpu_cores, silent.threads_per_process, silent.settings["OMP_NUM_THREADS"]) == (1, 1, "1")
    assert silent.settings["SITE"] == "1"
    assert launch_facts([report(0), silent])["hosts"] == ["n0", "n7"]


def test_reports_of_nodes_that_could_give_one(tmp_path: Path) -> None:
    exchange = Exchange(tmp_path)
    exchange.write_part_report(1, {"part": 1})
    assert exchange.read_part_reports(3) == [{"part": 1}]


def test_parts_are_nodes_or_under_mpi_ranks() -> None:
    together = parts(5, 2, one_rank_each=False)
    assert [(part.node, list(part.ranks), part.local_size) for part in together] == [(0, [0, 1, 2], 3), (1, [3, 4], 2)]
    alone = parts(5, 2, one_rank_each=True)
    assert [(part.node, part.ranks[0], part.first_local, part.local_size) for part in alone] == [
        (0, 0, 0, 3), (0, 1, 1, 3), (0, 2, 2, 3), (1, 3, 0, 2), (1, 4, 1, 2)
    ]  # fmt: skip


def test_what_starts_the_parts() -> None:
    job = LaunchPlan(["python"], 5, 2, "127.0.0.1", "meeting", "token", {}, cores=6)
    assert "--ntasks=2 --ntasks-per-node=1" in " ".join(srun(job, ["a", "b"], "pmi2").command)
    under_mpi = " ".join(srun(replace(job, mpi=True), ["a", "b"], "pmi2").command)
    assert "--ntasks=5 --ntasks-per-node=3" in under_mpi and "--cpus-per-task=2 --mpi=pmi2" in under_mpi
    assert mpiexec(replace(job, mpi=True), "/opt/mpiexec", "here").command == ["/opt/mpiexec", "-n", "5"]


def test_a_part_is_told_which_it_is() -> None:
    assert part_index(["PMI_RANK", "PMIX_RANK"], {"PMIX_RANK": "3"}) == 3
    with pytest.raises(ValueError, match="none of PMI_RANK"):
        part_index(["PMI_RANK"], {"PMI_RANK": ""})


def failure(kind: str, job_id: str | None = "5") -> Failure:
    return Failure(kind, "interrupted by SIGTERM", None, (), "", "n1", job_id)


def job(state: str, reason: str = "None") -> SlurmJob:
    return SlurmJob("5", state, reason, "n1", "", "", "")


@pytest.mark.parametrize(
    ("state", "reason", "kind"),
    [
        ("CANCELLED", "None", "cancelled"),
        ("TIMEOUT", "TimeLimit", "time_limit"),
        ("COMPLETING", "TimeLimit", "time_limit"),
        ("NODE_FAIL", "NodeDown", "node_failure"),
        ("PREEMPTED", "None", "preempted"),
        ("OUT_OF_MEMORY", "OutOfMemory", "out_of_memory"),
        ("FAILED", "NonZeroExitCode", "interrupted"),
    ],
)
def test_slurm_says_what_the_signal_meant(state: str, reason: str, kind: str) -> None:
    told = with_slurms_account(failure("interrupted"), job(state, reason))
    assert told.kind == kind
    assert told.full_reason.startswith(f"Slurm job 5: {state}")
    assert told.full_reason.endswith("; interrupted by SIGTERM")


def test_a_later_answer_takes_the_place_of_an_earlier_one() -> None:
    first = with_slurms_account(failure("interrupted"), job("COMPLETING", "TimeLimit"))
    assert first.scheduler == "Slurm job 5: COMPLETING (TimeLimit, nodes n1)"
    last = with_slurms_account(first, job("CANCELLED"))
    assert (last.kind, last.scheduler) == ("cancelled", "Slurm job 5: CANCELLED (nodes n1)")


def test_what_the_launcher_saw_itself_stays() -> None:
    for own in (failure("crash"), failure("startup_timeout")):
        assert with_slurms_account(own, job("CANCELLED")) == own
    assert with_slurms_account(failure("killed"), job("RUNNING")) == failure("killed")
    assert with_slurms_account(failure("killed"), job("FAILED")) == failure("killed")
    assert with_slurms_account(failure("interrupted", None)) == failure("interrupted", None)


@pytest.mark.parametrize(
    ("kind", "scheduler", "asked"),
    [
        *[("crash", None, []), ("corrupt_record", None, []), ("time_limit", "Slurm job 5: TIMEOUT", [])],
        *[("interrupted", None, [["5", "6"]]), ("time_limit", "Slurm job 5: COMPLETING (TimeLimit)", [["5", "6"]])],
    ],
)
def test_slurm_is_asked_once_and_only_where_it_may_know_more(
    kind: str, scheduler: str | None, asked: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand cells that crashed would be a thousand questions to the controller whenever somebody looks at them."""
    questions: list[list[str]] = []

    def find_jobs(job_ids: list[str]) -> dict[str, SlurmJob]:
        questions.append(job_ids)
        return {"5": job("TIMEOUT")}

    monkeypatch.setattr(endings, "find_jobs", find_jobs)
    study = make_study([make_comparison([planned(make_cell()), planned(make_cell(), repeat=2)])])
    study = replace(study, system=replace(study.system, slurm=SlurmSite()))
    folders = [record_path(tmp_path, study.system.name, cell).parent for cell in study.planned]
    for folder, job_id in zip(folders, ("5", "6"), strict=True):
        folder.mkdir(parents=True)
        write_failure(folder, replace(failure(kind, job_id), scheduler=scheduler))
    endings.ask_slurm_for_reasons(study, tmp_path, tmp_path, Queue(silence="it is away"))
    assert questions == []
    endings.ask_slurm_for_reasons(study, tmp_path, tmp_path, Queue())
    assert questions == asked
    if asked:
        told = [read_failure(folder) for folder in folders]
        assert [f.kind for f in told if f] == ["time_limit", kind]


def refuse(path: Path, data: object) -> None:
    """In place of `write_json`, a disk without room for another file; tests/slurm fills a real one."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_an_account_fits_into_the_room_of_the_note_that_was_there_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear_former_launch(tmp_path, "5")
    monkeypatch.setattr(results, "write_json", refuse)
    told = replace(failure("disk_full"), last_lines=("OSError: [Errno 28] No space left on device",))
    write_failure(tmp_path, told)
    assert read_failure(tmp_path) == told
    write_failure(tmp_path, replace(told, last_lines=("x" * 300,) * 20))
    assert read_failure(tmp_path) == replace(told, last_lines=())
    with pytest.raises(OSError, match="No space left"):
        write_failure(tmp_path / "another", told)


def test_an_account_that_cannot_be_kept_is_told_all_the_same(tmp_path: Path) -> None:
    """In the cell's place lies a file, so that no folder can be made."""
    (tmp_path / "repeat1").touch()
    told = kept_failure(tmp_path / "repeat1", failure("cancelled"))
    assert (told.kind, told.job_id) == ("cancelled", "5")
    assert told.reason == "interrupted by SIGTERM (this could not be kept beside the cell: File exists)"


def test_no_account_is_written_beside_a_record(tmp_path: Path) -> None:
    (tmp_path / "record.json").touch()
    kept_failure(tmp_path, failure("cancelled"))
    assert read_failure(tmp_path) is None


def test_a_rank_that_could_write_nothing_met_a_full_disk(tmp_path: Path) -> None:
    said = "OSError: [Errno 28] No space left on device: 'rank0.json'"
    ending = Ending("crash", "rank 0 ended with 1", 0, ("x", said))
    verdict = judge(ending, Exchange(tmp_path), make_cell("torch_ddp", 1), False)
    assert (verdict.kind, verdict.reason) == ("disk_full", f"rank 0: {said}; make room and run again")


def test_the_last_lines_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    assert log_tail(log) == ()
    log.write_text("".join(f"line {number}\n" for number in range(50)))
    assert log_tail(log)[-1] == "line 49"
    assert len(log_tail(log)) == 20


@pytest.mark.parametrize("mpi", [False, True])
def test_a_process_gets_the_threads_that_its_cell_names_whatever_their_number(mpi: bool) -> None:
    named = [LaunchPlan(["python"], n, 1, "127.0.0.1", "m", "t", {}, cores=8, threads=1, mpi=mpi) for n in (1, 2, 4)]
    assert [job.shares(job.num_gpus)[1] for job in named] == [1, 1, 1]
    assert {job.shares(job.num_gpus)[2]["OMP_NUM_THREADS"] for job in named} == {"1"}
    shared = LaunchPlan(["python"], 64, 1, "127.0.0.1", "m", "t", {}, cores=8, mpi=mpi)
    assert shared.shares(64)[1] == 1


def test_what_others_used_is_told_with_the_cores_it_was_counted_over() -> None:
    facts = launch_facts([replace(report(0), counted_cores=3)])
    assert facts["others_cpu_cores"] == 3
    assert launch_facts([report(0)])["others_cpu_cores"] is None
