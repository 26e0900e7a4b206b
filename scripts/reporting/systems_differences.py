"""What differs between two systems' results at the same point, besides the machine: settings, work, devices, code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from contracts.devices import Device
from reporting.results import Result, is_true

# What a difference is called, by the column of measurements.csv. The first kind leaves a ratio that means something;
# of the second kind the rows did other work, and tokens/s of other work are no ratio.
SETTINGS = {
    "precision": "precision",
    "activation_checkpointing": "activation checkpointing",
    "num_nodes": "number of nodes",
    "corpus": "corpus",
    "seed": "seed",
    "learning_rate": "learning rate",
    "adam_epsilon": "AdamW's epsilon",
}
WORK = {
    "global_batch_size": "global batch",
    "seq_length": "sequence length",
    "num_layers": "layers",
    "hidden_size": "hidden size",
    "num_heads": "heads",
    "vocab_size": "vocabulary",
    "num_parameters": "parameters",
}
_OF_THE_MACHINE = ("kernel",)  # among `versions`, and no part of what was run


@dataclass(frozen=True)
class Side:
    """What one system has at one point: the result its tables show, and the rows behind it, one for each repeat.

    Where nothing was measured, the rows are all of the point.
    """

    result: Result
    rows: tuple[Mapping[str, Any], ...]

    def values(self, column: str) -> str:
        """What the rows hold, several joined by ` + `; empty where it is unknown."""
        known = {row[column] for row in self.rows if not pd.isna(row[column]) and row[column] != ""}
        return " + ".join(map(str, sorted(known)))


def different(labels: Mapping[str, str], side: Side, first: Side) -> list[str]:
    """`global batch 8, not 4`; what is unknown on one side is no difference."""
    found = []
    for column, label in labels.items():
        here, there = side.values(column), first.values(column)
        if here and there and here != there:
            found.append(f"{label} {here}, not {there}")
    return found


def different_devices(side: Side, first: Side) -> list[str]:
    one, other = side.result, first.result
    found = []
    if one.device != other.device:
        found.append("GPUs, not CPU processes" if Device(one.device).is_accelerator else "CPU processes, not GPUs")
    if one.device_name and other.device_name and one.device_name != other.device_name:
        found.append(f"device {one.device_name}, not {other.device_name}")
    if one.device == other.device == Device.CPU:
        # What one process is; on a GPU the threads do little.
        found += different({"threads_per_process": "threads per process"}, side, first)
    return found


def different_code(system: str, side: Side, first: str, first_side: Side) -> list[str]:
    """The project's own code by its commit, and the versions of what it ran with."""
    here, there = side.values("git_commit"), first_side.values("git_commit")
    found = []
    unknown = [name for name, commit in ((system, here), (first, there)) if not commit]
    if unknown:
        found.append(f"code not known to be the same (no commit recorded on {', '.join(unknown)})")
    elif here != there:
        found.append(f"code of commit {_short_commits(here)}, not {_short_commits(there)}")
    elif "-dirty" in here:
        found.append(f"code not known to be the same (uncommitted changes to {_short_commits(here)})")
    changed = [
        name
        for name, one in ((system, side), (first, first_side))
        if any(is_true(row["code_changed"]) for row in one.rows)
    ]
    if len(changed) == 1:
        found.append(f"code changed since it was measured on {changed[0]}")
    return found + _different_versions(side.values("versions"), first_side.values("versions"))


def _different_versions(here: str, there: str) -> list[str]:
    ours, theirs = _versions(here), _versions(there)
    if not ours or not theirs:
        return []
    return [
        f"{name} {ours.get(name, 'absent')}, not {theirs.get(name, 'absent')}"
        for name in sorted({*ours, *theirs} - {*_OF_THE_MACHINE})
        if ours.get(name) != theirs.get(name)
    ]


def _versions(text: str) -> dict[str, str]:
    """`python 3.11.7;torch 2.13.0` by name; repeats that ran with several have them joined."""
    found: dict[str, dict[str, None]] = {}
    for entry in text.replace(" + ", ";").split(";"):
        name, _, version = entry.strip().partition(" ")
        if name:
            found.setdefault(name, {})[version] = None
    return {name: " + ".join(versions) for name, versions in found.items()}


def _short_commits(commits: str) -> str:
    """The first seven digits of each, with the mark of uncommitted changes."""
    return " + ".join(
        commit[:7] + ("-dirty" if commit.endswith("-dirty") else "") for commit in commits.split(" + ") if commit
    )
