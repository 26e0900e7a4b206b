"""Which rows of a comparison were measured alike, and what is different about the others.

Two rows can be set beside each other when what changes their speed is the same: threads, binding, variables, device,
processor, cores, tokens, and within a framework its packages. Each of these is judged by itself: where more than half
of the rows that know it have one value, the others are unlike them; where no value has so many, all of these rows are.
A row that does not know it differs from nothing. Other differences (kernel, Python, packages of other frameworks) are
told and keep nothing out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# What a row has, read in one or several ways, for all rows of a comparison in the same ways. Threads, for instance, are
# the same on one and on two processes either as a number (2 and 2) or as a share of the cores (2 of 2, 1 of 2).
Fact = tuple[str, ...]


@dataclass(frozen=True)
class Conditions:
    """Under which conditions a row was measured, by what a reader calls them; None where its record does not say.

    `facts` change the speed; `packages` (name to version) do so within one framework; `told` are only told.
    """

    framework: str
    facts: Mapping[str, Fact | None] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[str, Fact | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Unlike:
    """How one row differs from the rows beside it: `has` is empty where it may be compared.

    Rows with an equal `has` are alike among themselves. `notes` say what keeps it out, and what is only told.
    """

    has: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def unlike_rows(rows: Sequence[Conditions]) -> list[Unlike]:
    """Return one `Unlike` for each row of a comparison, in the rows' order."""
    everywhere = range(len(rows))
    has: list[list[str]] = [[] for _ in rows]
    apart: list[list[str]] = [[] for _ in rows]
    told: list[list[str]] = [[] for _ in rows]
    for name in _names(row.facts for row in rows):
        for index, (value, note) in _odd_ones(name, everywhere, [row.facts.get(name) for row in rows]).items():
            has[index].append(f"{name} {value}")
            apart[index].append(f"not compared: {note}")
    for framework, members in _by_framework(rows).items():
        for package in _names(rows[index].packages for index in members):
            versions = [_version(rows[index], package) for index in members]
            for index, (value, note) in _odd_ones(package, members, versions, f"rows of {framework}").items():
                has[index].append(f"{package} {value}")
                apart[index].append(f"not compared: {note}")
    for name in _names(row.told for row in rows):
        for index, (_, note) in _odd_ones(name, everywhere, [row.told.get(name) for row in rows]).items():
            told[index].append(note)
    for package in _names(row.packages for row in rows):
        for index, (value, note) in _odd_ones(package, everywhere, [_version(row, package) for row in rows]).items():
            if f"{package} {value}" not in has[index]:
                told[index].append(note)
    return [Unlike(tuple(has[index]), (*apart[index], *told[index])) for index in everywhere]


def _odd_ones(
    name: str, indices: Sequence[int], facts: Sequence[Fact | None], whose: str = "rows of the comparison"
) -> dict[int, tuple[str, str]]:
    """Return index -> (value, note) for the rows that are unlike the majority in one fact; all where there is none."""
    known = [(index, fact) for index, fact in zip(indices, facts, strict=True) if fact is not None]
    if not known:
        return {}
    # The reading in which most rows are alike is the one that the number of processes does not explain away.
    ways = [[fact[way] for _, fact in known] for way in range(len(known[0][1]))]
    values = max(ways, key=lambda values: max(Counter(values).values()))
    counts = Counter(values)
    if len(counts) == 1:
        return {}
    usual, number = counts.most_common(1)[0]
    if 2 * number > len(values):
        return {
            index: (value, f"{name} {value}, most {whose} have {usual}")
            for (index, _), value in zip(known, values, strict=True)
            if value != usual
        }
    note = f"{name} differs among {whose} ({', '.join(sorted(counts))})"
    return {index: (value, note) for (index, _), value in zip(known, values, strict=True)}


def _version(row: Conditions, package: str) -> Fact | None:
    return (row.packages[package],) if package in row.packages else None


def _names(mappings: Iterable[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _by_framework(rows: Sequence[Conditions]) -> dict[str, list[int]]:
    members: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        members[row.framework].append(index)
    return members
