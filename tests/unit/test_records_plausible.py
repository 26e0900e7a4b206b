"""A record that no run can leave, or that belongs elsewhere, does not count; one that a run can leave always does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.cell import Layout
from factories import make_cell, make_record, planned
from records.plausible import problem_of
from records.reader import read_outcome
from workloads.training.training_cell import TrainingCell

Record = dict[str, Any]
Change = Callable[[Record], Any]
CORPUS = {"source": "bundled", "revision": "1", "tokenizer": "gpt2"}
# Five ranks on two nodes: three on the first, two on the second.
CELL = make_cell("torch_ddp", 5, gpus_per_node=3, global_batch_size=10, corpus=CORPUS)


def set_in(series: str, batch: int, value: Any, rank: int = 0) -> Change:
    return lambda record: record["ranks"][rank][series].__setitem__(batch, value)


def set_rank(at: int = 0, /, **values: Any) -> Change:
    return lambda record: record["ranks"][at].update(values)


def set_launch(**values: Any) -> Change:
    return lambda record: record["launch"].update(values)


def set_tokens(**values: Any) -> Change:
    return lambda record: record["tokens"].update(values)


def shift_from(batch: int, seconds: float) -> Change:
    """From this batch on one rank's clock shows so much more."""

    def change(record: Record) -> None:
        for series in ("batch_start_s", "batch_end_s"):
            stamps = record["ranks"][1][series]
            stamps[batch:] = [stamp + seconds for stamp in stamps[batch:]]

    return change


def swap(series: str, one: int, other: int) -> Change:
    def change(record: Record) -> None:
        values = record["ranks"][2][series]
        values[one], values[other] = values[other], values[one]

    return change


# What no run leaves -> a part of the reason.
IMPOSSIBLE: dict[str, tuple[Change, str]] = {
    "batches that overlap": (set_in("batch_start_s", 4, 52.5), "batch 5 starts 0.5 s before batch 4 ended"),
    "all batches start at one instant": (
        lambda r: r["ranks"][0].update(batch_start_s=[0.0] * 11),
        "batch 2 starts 50 s before batch 1 ended",
    ),
    "a clock that jumps back": (shift_from(6, -100.0), "batch 7 starts 100 s before batch 6 ended"),
    "a batch that ends before it starts": (set_in("batch_end_s", 3, 51.5), "batch 4 ends"),
    "a batch that takes no time": (set_in("batch_start_s", 5, 55.0), "batch 6 took no time"),
    "stamps of two batches exchanged": (swap("batch_start_s", 3, 7), "starts"),
    "a wait longer than there was time": (set_in("input_time_s", 5, 0.5), "batch 6 waited 0.5 s"),
    "a negative wait": (set_in("input_time_s", 0, -0.5), "batch 1 waited -0.5 s"),
    "a wait that no clock shows": (set_in("input_time_s", 0, 1e300), "a stamp that no clock shows"),
    "a stamp that no clock shows": (set_in("batch_end_s", 10, 1e308), "a stamp that no clock shows"),
    "a clock read before the last batch ended": (set_rank(clock={"monotonic_s": 1.0, "unix_s": 1e9}), "its clock"),
    "a wall clock that no clock shows": (set_rank(clock={"monotonic_s": 60.0, "unix_s": 1e300}), "its clock"),
    "a wall time shorter than its batches": (set_launch(wall_s=59.9), "its batches took 60 s"),
    "a negative wall time": (set_launch(wall_s=-1.0), "launch.wall_s is -1"),
    "others' time is negative": (set_launch(others_cpu_s=-0.5), "launch.others_cpu_s is -0.5"),
    "no cores": (set_launch(cpu_cores=0), "launch.cpu_cores is 0"),
    "negative threads": (set_launch(threads_per_process=-2), "launch.threads_per_process is -2"),
    "10^30 nodes": (set_launch(num_nodes=10**30), "launch.num_nodes is larger than anything that is counted"),
    "10^30 tokens": (set_tokens(num_tokens=10**30), "tokens.num_tokens is larger"),
    "no tokens": (set_tokens(num_tokens=0), "tokens.num_tokens is 0"),
    "a limit of no memory": (set_launch(memory_limit_gib=0.0), "launch.memory_limit_gib is 0"),
    "negative memory": (set_rank(peak_memory_bytes=-1), "peak_memory_bytes is -1"),
    "more memory than can be addressed": (set_rank(peak_memory_bytes=2**62), "peak_memory_bytes is"),
    "memory that is a huge float": (set_rank(peak_memory_bytes=1e300), "peak_memory_bytes is"),
    "a negative matrix": (set_rank(matmul_size=-2048), "matmul_size is -2048"),
    "an empty matrix": (set_rank(matmul_size=0), "matmul_size is 0"),
    "a product in no time": (set_rank(matmul_seconds=[1e-300]), "a product of two matrices"),
    "a process of 1e308 threads": (set_rank(process={"threads": 1e308}), "process.threads is 1e+308"),
    "1e308 cores that others were counted over": (set_launch(others_cpu_cores=1e308), "launch.others_cpu_cores is"),
    "a product at 2e17 FLOP/s": (set_rank(matmul_size=2048, matmul_seconds=[8.6e-8]), "faster than any processor"),
    "an infinite loss as a number": (set_in("losses", 3, float("inf")), "is inf"),
    "a loss that no sum can hold": (set_in("losses", 3, 1e308), "a loss is larger"),
    "status ok and a loss that is not finite": (set_in("losses", 3, "nan"), "its status is ok, and a loss is not"),
    "status nan and every loss finite": (lambda r: r.update(status="nan"), "its status is nan, and every loss"),
    "no loss at all": (
        lambda r: [rank.update(losses=[None] * 11) for rank in r["ranks"]],
        "no rank holds a loss",
    ),
    "a lone surrogate": (set_rank(device_name="\ud800"), "record.ranks[0].device_name holds a character"),
    "a NUL": (lambda r: r.update(reason="a\0b"), "record.reason holds a character"),
    "a lone surrogate as a key": (lambda r: r["versions"].update({"\udfff": "1"}), "a key of record.versions"),
    "a day that no calendar has": (lambda r: r.update(started_at="2026-02-31T00:00:00+00:00"), "started_at is"),
    "a speed that breaks arithmetic": (
        lambda r: r.update(reported_by_framework={"samples_per_s": 1e308}),
        "reported_by_framework.samples_per_s",
    ),
}

# What is not this cell's -> a part of the reason.
ELSEWHERE: dict[str, tuple[Change, str]] = {
    "another framework": (lambda r: r.update(framework="torch_fsdp"), "its framework is 'torch_fsdp'"),
    "another number of nodes": (set_launch(num_nodes=1), "its number of nodes is 1, and this cell's is 2"),
    "a host too many": (set_launch(hosts=["host0", "host1", "host2"]), "its number of host names is 3"),
    "a host too few": (set_launch(hosts=["host0"]), "its number of host names is 1"),
    "a host on which no rank ran": (set_launch(hosts=["host0", "host7"]), "the launcher used host0, host7"),
    "a rank on a host of nobody": (set_rank(4, host="else"), "its ranks ran on else, host0, host1"),
    "a rank less": (lambda r: r["ranks"].pop(), "it does not hold every rank of 5"),
    "a rank more": (lambda r: r["ranks"].append({**r["ranks"][0], "rank": 5}), "it does not hold every rank of 5"),
    "a rank twice": (set_rank(1, rank=0), "it does not hold every rank of 5"),
    "ranks in another order": (lambda r: r["ranks"].reverse(), "it does not hold every rank of 5 once and in order"),
    "a rank in another's place": (set_rank(3, local_rank=3), "rank 3 has the local rank 3, and its place on its node"),
    "one share read twice": (set_rank(1, data_rank=0), "its ranks did not read the 5 shares"),
    "shares of another size": (set_rank(1, data_size=1), "its ranks did not read the 5 shares"),
    "another split": (set_tokens(split="test"), "its split of the corpus is 'test'"),
    "another corpus": (set_tokens(source="wikitext"), "its source of the corpus is 'wikitext'"),
    "another revision": (set_tokens(revision="2"), "its revision of the corpus is '2'"),
    "another tokenizer": (set_tokens(tokenizer="bytes"), "its tokenizer of the corpus is 'bytes'"),
    "a digest that is none": (set_tokens(sha256="0" * 63), "tokens.sha256 is no SHA-256"),
    "a digest with a line end": (set_tokens(sha256="0" * 64 + "\n"), "tokens.sha256 is no SHA-256"),
}


def record_of(cell: TrainingCell = CELL, change: Change | None = None, **changes: Any) -> Record:
    """What is read back from the file, so that nothing is shared between ranks."""
    record = json.loads(json.dumps(make_record(cell, **changes)))
    record["tokens"] |= CORPUS
    if change:
        change(record)
    return record


@pytest.mark.parametrize("what", [*IMPOSSIBLE, *ELSEWHERE])
def test_what_no_run_leaves_is_damaged_and_says_why(what: str, tmp_path: Path) -> None:
    change, reason = (IMPOSSIBLE | ELSEWHERE)[what]
    record = record_of(change=change)
    assert reason in (problem_of(record, CELL) or "")
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record).replace("Infinity", "1e999"))
    outcome = read_outcome(planned(CELL), path, "local")
    assert (outcome.status, outcome.kind, outcome.record) == ("missing", "corrupt_record", None)
    outcome.reason.encode("utf-8")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_launch(system="cluster"), "system 'cluster', and it lies among those of 'local'"),
        (lambda r: r.update(model_name="large"), "model 'large', and it lies among those of"),
    ],
)
def test_what_may_have_been_renamed_stays_and_does_not_count(change: Change, words: str, tmp_path: Path) -> None:
    """Thousands of GPU-hours may lie in a folder that somebody renamed together with its file in config/systems/."""
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record_of(change=change)))
    outcome = read_outcome(planned(CELL), path, "local")
    assert (outcome.status, outcome.kind, outcome.record) == ("missing", "misplaced_record", None)
    assert words in outcome.reason and "give the renamed its old name again" in outcome.reason


LONG = "long " * 2000


@pytest.mark.parametrize(
    "change",
    [
        set_launch(system=LONG),
        lambda record: record.update(model_name=LONG),
        lambda record: record.update(framework=LONG),
        set_tokens(source=LONG),
        set_tokens(split=LONG),
        set_launch(hosts=[LONG]),
        lambda record: [rank.update(host=f"{rank['rank']} {LONG}") for rank in record["ranks"]],
        lambda record: record["settings"].update({LONG: "\ud800"}),
    ],
)
def test_a_reason_shows_no_more_of_a_record_than_a_line_holds(change: Change, tmp_path: Path) -> None:
    """Reasons stand in tables, on the terminal and in notes."""
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record_of(change=change)))
    outcome = read_outcome(planned(CELL), path, "local")
    assert outcome.status == "missing" and 10 < len(outcome.reason) < 1000


def test_a_number_beyond_floats_is_refused_while_it_is_parsed(tmp_path: Path) -> None:
    """Python reads 1e999 as infinity; a size of the file that is no number at all must not be taken for one."""
    path = tmp_path / "record.json"
    for number in ("1e999", "-1e999", "Infinity", "NaN", "1" * 5000):
        path.write_text(json.dumps(record_of()).replace('"wall_s": 80.0', f'"wall_s": {number}'))
        assert read_outcome(planned(CELL), path, "local").kind == "corrupt_record", number


@pytest.mark.parametrize("depth", [200, 900, 100_000])
def test_nesting_without_end_is_damage(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    deep = "[" * depth + "]" * depth
    for place in ('"identity": {', '"code": {', '"settings": {'):
        path.write_text(json.dumps(record_of()).replace(place, f'{place}"deep": {deep}, '))
        assert read_outcome(planned(CELL), path, "local").kind == "corrupt_record"


def waits(record: Record) -> None:
    """Every batch waits a second for its input, on clocks that have run for a year."""
    for rank in record["ranks"]:
        began = 3.2e7 + 0.1 * rank["rank"]
        rank["batch_start_s"] = [began + 2.1 * batch + 1 / 3 for batch in range(11)]
        rank["batch_end_s"] = [stamp + 1.1 for stamp in rank["batch_start_s"]]
        asked = [began, *rank["batch_end_s"][:-1]]
        rank["input_time_s"] = [start - ask for start, ask in zip(rank["batch_start_s"], asked, strict=True)]
        rank["clock"] = {"monotonic_s": rank["batch_end_s"][-1], "unix_s": 1.8e9}
    first = record["ranks"][0]
    record["launch"]["wall_s"] = first["batch_end_s"][-1] - began + 0.5


def exact_wall(record: Record) -> None:
    waits(record)
    record["launch"]["wall_s"] = max(
        rank["batch_end_s"][-1] - (rank["batch_start_s"][0] - rank["input_time_s"][0]) for rank in record["ranks"]
    )


# What a run can leave, however odd.
POSSIBLE: dict[str, Change] = {
    "nothing odd": lambda r: None,
    "waits and an old clock": waits,
    "a wall time that is the batches' alone": exact_wall,
    "a wall clock that was set back": lambda r: r.update(
        started_at="2026-11-29T12:00:00+00:00", finished_at="2026-11-29T11:00:00+00:00"
    ),
    "a wall clock that has never been set": set_rank(clock={"monotonic_s": 60.0, "unix_s": 12.0}),
    "two nodes that are one machine": lambda r: [
        r["launch"].update(hosts=["n1", "n2"]),
        *(rank.update(host="n1" if rank["rank"] < 3 else "n2") for rank in r["ranks"]),
    ],
    "two nodes that go by one name": lambda r: [
        r["launch"].update(hosts=["n", "n"]),
        *(rank.update(host="n") for rank in r["ranks"]),
    ],
    "memory that is not known": set_rank(peak_memory_bytes=None),
    "no product": set_rank(matmul_size=None, matmul_seconds=[]),
    "others that are not known": set_launch(others_cpu_s=None),
    "a rank without losses": set_rank(2, losses=[None] * 11),
    "a record from before the corpus was noted": lambda r: [r["tokens"].pop(key) for key in CORPUS],
    "a corpus that is not known": set_tokens(source=None, revision=None, tokenizer=None),
    "a framework that reports nonsense of itself": lambda r: r.update(reported_by_framework={"samples_per_s": -1.0}),
}


@pytest.mark.parametrize("what", POSSIBLE)
def test_what_a_run_can_leave_counts(what: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record_of(change=POSSIBLE[what])))
    outcome = read_outcome(planned(CELL), path, "local")
    assert (outcome.status, outcome.reason) == ("ok", "")


@pytest.mark.parametrize("num_gpus", range(1, 12))
@pytest.mark.parametrize("gpus_per_node", [1, 2, 3, 4])
def test_however_ranks_are_placed(num_gpus: int, gpus_per_node: int) -> None:
    cell = make_cell("torch_ddp", num_gpus, gpus_per_node=gpus_per_node, corpus=CORPUS)
    assert problem_of(record_of(cell), cell) is None


def test_ranks_of_one_share_read_the_same() -> None:
    """Which rank reads which share is the adaptor's to say; that all are read is not."""
    cell = make_cell("axonn", 8, layout=Layout(2, tensor_parallel=2, pipeline_parallel=2), corpus=CORPUS)
    by_rank = [0, 0, 1, 1, 0, 0, 1, 1]
    record = record_of(cell, lambda r: [rank.update(data_rank=d) for rank, d in zip(r["ranks"], by_rank, strict=True)])
    assert problem_of(record, cell) is None
    record["ranks"][1]["data_rank"] = 2
    assert problem_of(record, cell)


@pytest.mark.parametrize("status", ["oom", "not_available"])
@pytest.mark.parametrize("left", [[], [0], [1, 4], [0, 1, 2, 3, 4]])
def test_of_a_cell_that_failed_some_ranks_may_have_left_their_account(status: str, left: list[int]) -> None:
    record = record_of(status=status, reason="rank 2: out of memory")
    record["ranks"] = [record["ranks"][rank] for rank in left]
    # A node that could not report goes by its number; a cell of which nothing could be started took no time.
    record["launch"]["hosts"] = ["host0", "1 of the job"]
    record["launch"]["wall_s"] = 80.0 if left else 0.0
    assert problem_of(record, CELL) is None
    record["ranks"] = [*record["ranks"], {**record_of()["ranks"][0], "rank": 9}]
    assert "does not hold every rank" in problem_of(record, CELL)


def test_a_loss_that_is_not_finite_is_the_status_nan() -> None:
    record = record_of(change=set_in("losses", 3, "inf"), status="nan", reason="a loss was not finite")
    assert problem_of(record, CELL) is None
