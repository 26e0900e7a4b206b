"""Which rows were measured alike, by the majority of those that know."""

from __future__ import annotations

from metrics.alike import Conditions, Unlike, unlike_rows


def on(framework: str = "a", packages: dict[str, str] | None = None, **facts: str | tuple[str, ...] | None):
    """Conditions whose facts are given by name."""
    read = {name: (value,) if isinstance(value, str) else value for name, value in facts.items()}
    return Conditions(framework, read, packages or {})


def test_rows_that_are_alike_have_nothing_to_say() -> None:
    assert unlike_rows([on(threads="2"), on("b", threads="2")]) == [Unlike(), Unlike()]
    assert unlike_rows([]) == []


def test_the_minority_is_named_with_what_most_rows_have() -> None:
    found = unlike_rows([on(threads="2"), on(threads="1"), on("b", threads="2")])
    assert [one.has for one in found] == [(), ("threads 1",), ()]
    assert found[1].notes == ("not compared: threads 1, most rows of the comparison have 2",)


def test_without_a_strict_majority_all_rows_are_unlike() -> None:
    found = unlike_rows([on(threads=value) for value in ("2", "1", "1", "2")])
    assert [one.has for one in found] == [("threads 2",), ("threads 1",), ("threads 1",), ("threads 2",)]
    assert {one.notes for one in found} == {("not compared: threads differs among rows of the comparison (1, 2)",)}


def test_what_a_row_does_not_know_differs_from_nothing_and_has_no_vote() -> None:
    found = unlike_rows([on(threads="2"), on(threads=None), on(), on(threads="2"), on(threads="1")])
    assert [bool(one.has) for one in found] == [False, False, False, False, True]
    assert [bool(one.has) for one in unlike_rows([on(threads="2"), on(threads=None), on()])] == [False] * 3


def test_what_the_number_of_processes_implies_is_no_difference() -> None:
    """Two cores: 2 threads on one process and 1 each on two are the same share; a third row has one thread alone."""
    one, two, other = ("2", "share"), ("1", "share"), ("1", "1")
    assert [bool(row.has) for row in unlike_rows([on(threads=one), on(threads=two)])] == [False, False]
    found = unlike_rows([on(threads=one), on(threads=one), on(threads=two), on(threads=other)])
    assert [row.has for row in found] == [(), (), (), ("threads 1",)]
    # The same number for all is alike as well, although it is the share of none but the first.
    assert not any(row.has for row in unlike_rows([on(threads=("1", "share")), on(threads=other), on(threads=other)]))


def test_packages_count_within_a_framework_and_are_told_across_frameworks() -> None:
    rows = [on("a", {"torch": "2.13"}), on("a", {"torch": "2.13"}), on("a", {"torch": "2.12"}), on("b", {"torch": "2"})]
    found = unlike_rows(rows)
    assert [one.has for one in found] == [(), (), ("torch 2.12",), ()]
    assert found[2].notes == ("not compared: torch 2.12, most rows of a have 2.13",)
    assert found[3].notes == ("torch differs among rows of the comparison (2, 2.12, 2.13)",)


def test_what_is_only_told_keeps_nothing_out() -> None:
    rows = [Conditions("a", told={"kernel": (kernel,)}) for kernel in ("6.1", "6.1", "5.15")]
    found = unlike_rows(rows)
    assert [one.has for one in found] == [()] * 3
    assert [one.notes for one in found] == [(), (), ("kernel 5.15, most rows of the comparison have 6.1",)]
