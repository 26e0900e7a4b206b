"""What keeps rows out of a comparison: other settings, another machine, other packages, impossible numbers."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from contracts.outcomes import Outcome
from factories import HARDWARE, make_cell, make_comparison, make_record, make_study, measured_study, ok, planned
from metrics.rows import measurement_rows
from planning.plan import Study
from settings.systems import SlurmSite

Change = Callable[[dict[str, Any]], None]
Rows = dict[tuple[str, int, int], dict[str, Any]]
# Frameworks a and b on one and two processes, a with three repeats.
TIMES = {("a", 1): [1.0, 1.0, 1.0], ("a", 2): [0.6, 0.6, 0.6], ("b", 1): 1.2, ("b", 2): 0.8}


def rows_of(study: Study, outcomes: dict[tuple[str, int], Outcome]) -> Rows:
    frame = measurement_rows(study, outcomes, HARDWARE)
    return {(row["framework"], row["num_gpus"], row["repeat"]): row for row in frame.to_dict("records")}


def changed_rows(change: Change, *points: tuple[str, int, int], prepare: Change | None = None) -> Rows:
    """Rows of TIMES where the records of some (framework, processes, repeat) are changed; `prepare` changes all."""
    study, outcomes = measured_study(TIMES)
    for one in study.planned:
        record = outcomes[one.key].record
        if prepare:
            prepare(record)
        if (one.cell.framework, one.cell.num_gpus, one.repeat) in points:
            change(record)
    return rows_of(study, outcomes)


def set_threads(threads: int) -> Change:
    def change(record: dict[str, Any]) -> None:
        record["launch"]["environment"] = {"OMP_NUM_THREADS": str(threads)}

    return change


def set_variable(name: str, value: str) -> Change:
    return lambda record: record["launch"]["environment"].update({name: value})


def set_version(package: str, version: str) -> Change:
    return lambda record: record["versions"].update({package: version})


def set_device(name: str) -> Change:
    return lambda record: [rank.update(device_name=name) for rank in record["ranks"]]


def set_process(**facts: Any) -> Change:
    return lambda record: [rank.update(process=rank.get("process", {}) | facts) for rank in record["ranks"]]


def is_out(row: dict[str, Any]) -> bool:
    """Whether a row is neither compared nor compared with."""
    return row["comparable"] is False and pd.isna(row["speedup"]) and row["baseline"] == ""


def test_a_system_file_that_sets_the_threads_makes_no_framework_faster() -> None:
    """`a` on one process ran with one thread, all others with four: its second process seemed to be worth 3.4."""
    rows = changed_rows(set_threads(4), *(("a", 2, r) for r in (1, 2, 3)), ("b", 1, 1), ("b", 2, 1))
    assert all(is_out(rows["a", 1, repeat]) for repeat in (1, 2, 3))
    assert rows["a", 1, 1]["threads_per_process"] == 1 and rows["b", 1, 1]["threads_per_process"] == 4
    assert "threads per process 1, most rows of the comparison have 4" in rows["a", 1, 1]["notes"]
    # Two processes are the smallest number at which both frameworks are measured alike.
    assert rows["a", 2, 1]["speedup"] == 1.0 and rows["a", 2, 1]["baseline_num_gpus"] == 2
    assert rows["b", 1, 1]["speedup"] == pytest.approx(0.8 / 1.2)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (set_variable("MALLOC_MMAP_MAX_", "65536"), "variable MALLOC_MMAP_MAX_ 65536, most rows"),
        (set_variable("NCCL_ALGO", "Ring"), "variable NCCL_ALGO Ring, most rows of the comparison have not set"),
        (lambda record: record["tokens"].update(sha256="f" * 64), "token file ffffffffffff, most rows"),
        (lambda record: record["launch"].update(cpu_cores=4), "available cores 4, most rows"),
        (set_device("Other CPU"), "device kind Other CPU, most rows of the comparison have Test CPU"),
        (set_version("torch", "2.12.0"), "torch differs among rows of b (2.12.0, 2.13.0)"),
    ],
)
def test_a_row_measured_otherwise_is_not_compared_and_says_what_differs(change: Change, note: str) -> None:
    rows = changed_rows(change, ("b", 2, 1))
    assert is_out(rows["b", 2, 1]) and f"not compared: {note}" in rows["b", 2, 1]["notes"]
    assert rows["b", 2, 1]["best_layout"] is True, "a framework's only result is shown"
    assert rows["a", 2, 1]["comparable"] is True and rows["a", 2, 1]["speedup"] == pytest.approx(1 / 0.6)


@pytest.mark.parametrize(
    ("usual", "other", "note"),
    [
        (set_process(affinity_cores=8), set_process(affinity_cores=2), "cores of a process 2, most"),
        (set_process(threads=2), set_process(threads=8), "threads per process 8, most rows of the comparison have 2"),
        (
            set_process(variables={"KMP_AFFINITY": "compact"}),
            set_process(variables={"KMP_AFFINITY": "none"}),
            "variable KMP_AFFINITY none, most rows of the comparison have compact",
        ),
    ],
)
def test_what_the_process_really_had_is_what_counts(usual: Change, other: Change, note: str) -> None:
    rows = changed_rows(other, ("b", 2, 1), prepare=usual)
    assert is_out(rows["b", 2, 1]) and note in rows["b", 2, 1]["notes"]
    assert rows["b", 1, 1]["comparable"] is True


def test_old_records_beside_new_ones_cost_nothing() -> None:
    rows = changed_rows(
        set_process(
            threads=1, affinity_cores=8, variables={"OMP_NUM_THREADS": "1", "KMP_AFFINITY": "none"}, host_cores=8
        ),
        ("b", 2, 1),
    )
    assert all(row["comparable"] is True and row["notes"] == "" for row in rows.values())


def test_a_count_of_threads_that_says_something_else_than_the_threads_is_told() -> None:
    """A system file's OMP_NUM_THREADS beside the launcher's own of MKL: torch says one thread, as in all other rows."""
    one = set_process(threads=1, variables={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    other = set_process(threads=1, variables={"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "1"})
    rows = changed_rows(other, ("b", 2, 1), prepare=one)
    assert is_out(rows["b", 2, 1])
    assert (
        "variable OMP_NUM_THREADS 2, most rows of the comparison have the number of threads"
        in (rows["b", 2, 1]["notes"])
    )
    assert rows["a", 2, 1]["comparable"] is True and "MKL" not in rows["b", 2, 1]["notes"]


def test_a_variable_that_an_engine_sets_for_itself_is_no_difference() -> None:
    def change(record: dict[str, Any]) -> None:
        set_process(variables={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})(record)
        record["settings"]["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"

    rows = changed_rows(change, ("b", 2, 1), prepare=set_process(variables={}))
    assert rows["b", 2, 1]["comparable"] is True and rows["b", 2, 1]["notes"] == ""
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1" in rows["b", 2, 1]["variables"]


def test_the_share_of_the_cores_that_the_number_of_processes_implies_is_no_difference() -> None:
    """Eight cores: one process has eight threads, two have four each, as `threads_per_process: shared` gives them."""
    study, outcomes = measured_study(TIMES)
    for one in study.planned:
        threads = 8 // one.cell.num_gpus
        outcomes[one.key].record["launch"] |= {
            "threads_per_process": threads,
            "environment": {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
        }
    rows = rows_of(study, outcomes)
    assert all(row["comparable"] is True and row["notes"] == "" for row in rows.values())


def test_cores_that_a_job_asks_for_by_gpu_are_no_difference() -> None:
    """Four cores a GPU: a job of one sees four and a job of two eight."""
    study, outcomes = measured_study(TIMES)
    for one in study.planned:
        outcomes[one.key].record["launch"]["cpu_cores"] = 4 * one.cell.num_gpus
        set_process(affinity_cores=4 * one.cell.num_gpus, threads=4)(outcomes[one.key].record)
    assert all(row["comparable"] is True for row in rows_of(study, outcomes).values())


def test_copied_results_of_another_machine_do_not_mix_in() -> None:
    """Half of the records are another processor's: there is no majority, so nothing is set beside anything."""
    points = [("a", 1, 1), ("a", 1, 2), ("a", 1, 3), ("b", 1, 1)]
    rows = changed_rows(set_device("Other CPU"), *points)
    assert all(is_out(row) for row in rows.values())
    note = "not compared: device kind differs among rows of the comparison (Other CPU, Test CPU)"
    assert all(note in row["notes"] for row in rows.values())


def test_the_processor_of_a_gpus_host_counts_as_well() -> None:
    cells = [make_cell("a", n, device="cuda", precision="bf16") for n in (1, 2, 4)]
    outcomes = {}
    for cell, processor in zip(cells, ("CPU X", "CPU X", "CPU Y"), strict=True):
        record = make_record(cell, 1, 1.0, device_name="Tesla V100-SXM2-16GB")
        set_process(processor=processor)(record)
        outcomes[planned(cell).key] = ok(record)
    rows = rows_of(make_study([make_comparison([planned(c) for c in cells])], device="cuda"), outcomes)
    assert (
        is_out(rows["a", 4, 1])
        and "processor CPU Y, most rows of the comparison have CPU X" in rows["a", 4, 1]["notes"]
    )


def test_two_versions_of_a_package_are_never_averaged() -> None:
    """The third repeat of one cell ran with another version: its mean is that of the two that are alike."""
    rows = changed_rows(set_version("torch", "2.12.0"), ("a", 2, 3))
    assert is_out(rows["a", 2, 3]) and "torch 2.12.0, most rows of a have 2.13.0" in rows["a", 2, 3]["notes"]
    assert rows["a", 2, 3]["best_layout"] is False and pd.isna(rows["a", 2, 3]["layout_batch_time_s"])
    assert rows["a", 2, 1]["repeats_measured"] == 2 and rows["a", 2, 1]["comparable"] is True
    assert "without repeat 3, which was not measured alike" in rows["a", 2, 1]["notes"]


def test_repeats_of_which_no_two_are_alike_have_no_mean() -> None:
    study, outcomes = measured_study({("a", 1): [1.0, 1.2]})
    set_version("accelerate", "1.0.0")(outcomes[study.planned[0].key].record)
    set_version("accelerate", "1.1.0")(outcomes[study.planned[1].key].record)
    for row in rows_of(study, outcomes).values():
        assert is_out(row) and pd.isna(row["layout_batch_time_s"]) and row["repeats_measured"] == 2
        assert "accelerate differs among rows of a (1.0.0, 1.1.0)" in row["notes"]


def test_without_scaling_only_repeats_are_held_against_each_other() -> None:
    study, outcomes = measured_study({("a", 1): [1.0, 1.2], ("b", 1): 1.0}, scaling="none")
    set_threads(4)(outcomes[study.planned[2].key].record)
    assert all(row["notes"] == "" for row in rows_of(study, outcomes).values())
    set_threads(4)(outcomes[study.planned[1].key].record)
    rows = rows_of(study, outcomes)
    assert rows["a", 1, 1]["comparable"] is False and "threads per process differs" in rows["a", 1, 1]["notes"]
    assert rows["b", 1, 1]["notes"] == ""


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (set_version("kernel", "5.15"), ""),  # alone in knowing
        (set_process(kernel="5.15", driver="550", python="3.12.0", host_cores=8), "Python 3.12.0, most rows"),
        (lambda record: record["launch"].update(hosts=["elsewhere"]), "host elsewhere, most rows"),
    ],
)
def test_other_differences_are_told_and_keep_nothing_out(change: Change, note: str) -> None:
    row = changed_rows(change, ("b", 2, 1))["b", 2, 1]
    assert row["comparable"] is True and row["speedup"] == pytest.approx(1.5)
    assert (note in row["notes"]) if note else row["notes"] == ""


def test_a_shared_package_of_another_version_is_told_across_frameworks() -> None:
    rows = changed_rows(set_version("torch", "2.12.0"), ("b", 1, 1), ("b", 2, 1))
    assert rows["b", 2, 1]["notes"] == "torch 2.12.0, most rows of the comparison have 2.13.0"
    assert rows["b", 2, 1]["comparable"] is True


def test_hosts_of_a_cluster_are_many_and_no_news() -> None:
    study, outcomes = measured_study(TIMES)
    outcomes[study.planned[0].key].record["launch"]["hosts"] = ["node7"]
    study = dataclasses.replace(study, system=dataclasses.replace(study.system, slurm=SlurmSite()))
    assert all(row["notes"] == "" for row in rows_of(study, outcomes).values())


def test_a_speedup_far_above_the_ideal_is_neither_compared_nor_best() -> None:
    """Two processes 3.2 times as fast: the other framework's best is not measured against it."""
    rows = rows_of(*measured_study({("a", 1): 8.0, ("a", 2): 2.5, ("b", 1): 8.0, ("b", 2): 5.0}))
    row = rows["a", 2, 1]
    assert row["comparable"] is False and row["speedup"] == pytest.approx(3.2)
    assert "not compared: speedup 3.2 over an ideal of 2 is more than 1.5 times the ideal" in row["notes"]
    assert rows["b", 2, 1]["comparable"] is True
    # Fewer processes than the baseline are more efficient than it without any mistake.
    fewer = rows_of(*measured_study({("a", 1): 8.0, ("a", 4): 4.0, ("b", 4): 4.0}))["a", 1, 1]
    assert fewer["parallel_efficiency"] == pytest.approx(2.0) and fewer["comparable"] is True


def test_more_than_the_peak_is_neither_compared_nor_a_baseline() -> None:
    """213,909,504 FLOPs in 1 ms are 2.1e11 FLOP/s, of a peak of 2e11; in 10 and 6 ms they are not."""
    study, outcomes = measured_study({("a", 1): 0.001, ("b", 1): 0.01, ("a", 2): 0.006, ("b", 2): 0.006})
    rows = rows_of(study, outcomes)
    assert is_out(rows["a", 1, 1]) and rows["a", 1, 1]["model_flops_utilization_percent"] > 100
    assert "not compared: above the peak" in rows["a", 1, 1]["notes"]
    assert rows["b", 1, 1]["baseline_num_gpus"] == 2 and rows["a", 2, 1]["speedup"] == 1.0


def test_a_percentage_above_100_by_the_papers_formula_alone_is_explained() -> None:
    """In 1.2 ms: 89.1 % of the peak without recomputation, 111.8 % by the paper's formula, which counts some."""
    row = rows_of(*measured_study({("a", 1): 0.0012}))["a", 1, 1]
    assert row["percentage_of_peak_throughput"] == pytest.approx(111.85, abs=0.01)
    assert row["model_flops_utilization_percent"] == pytest.approx(89.13, abs=0.01)
    assert row["comparable"] is True
    assert "above 100 only because the paper's formula counts a whole recomputed pass" in row["notes"]


def test_nodes_with_fewer_ranks_give_each_a_larger_share_of_the_cores_and_stay_comparable() -> None:
    """Nodes of six GPUs and numbers of GPUs that are powers of two: 16 ranks are six, five and five on three nodes."""
    study, outcomes = measured_study({(name, n): 1.0 for name in "ab" for n in (2, 4, 16)}, gpus_per_node=6)
    for outcome in outcomes.values():
        ranks = outcome.record["ranks"]
        on_node = Counter(rank["host"] for rank in ranks)
        share = {host: 42 // number for host, number in on_node.items()}
        smallest = min(share.values())
        outcome.record["launch"] |= {"threads_per_process": smallest, "environment": {"OMP_NUM_THREADS": str(smallest)}}
        outcome.record["launch"]["cpu_cores"] = 42
        for rank in ranks:
            rank["process"] = {"threads": share[rank["host"]], "affinity_cores": 42}
    rows = rows_of(study, outcomes)
    assert {rank["process"]["threads"] for rank in outcomes[study.planned[2].key].record["ranks"]} == {7, 8}
    assert all(row["comparable"] is True and "threads" not in row["notes"] for row in rows.values())
    outcomes[study.planned[2].key].record["ranks"][0]["process"]["threads"] = 1
    rows = rows_of(study, outcomes)
    assert is_out(rows["a", 16, 1]) and "threads per process 1 + 7 + 8, most rows" in rows["a", 16, 1]["notes"]


def test_what_an_mpi_is_told_keeps_no_other_framework_out_and_its_own_rows_apart() -> None:
    """Open MPI's mpiexec sets variables of its own for the processes that it starts; torchrun's rows have none."""

    def told(value: str) -> Change:
        return set_process(variables={"OMPI_MCA_shmem_RUNTIME_QUERY_hint": value})

    rows = changed_rows(told("mmap"), ("b", 1, 1), ("b", 2, 1), prepare=set_process(variables={}))
    assert all(row["comparable"] is True for row in rows.values())
    rows = changed_rows(told("mmap"), ("b", 2, 1), prepare=set_process(variables={}))
    assert is_out(rows["b", 2, 1]) and "OMPI_MCA_shmem_RUNTIME_QUERY_hint differs" in rows["b", 2, 1]["notes"]
    assert rows["a", 2, 1]["comparable"] is True
