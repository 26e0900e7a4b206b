"""Collect what Slurm's programs say about a cluster, by calling them or by reading answers saved as text files."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from launcher.slurm.asking import TIMEOUT_S, asking_environment


@dataclass(frozen=True)
class Answers:
    """One text for each question (QUESTIONS), empty where there was no answer."""

    partitions: str = ""
    nodes: str = ""
    config: str = ""
    accounts: str = ""
    mpi: str = ""


QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "partitions": ("scontrol", "show", "partition", "--oneliner"),
    "nodes": ("scontrol", "show", "node", "--oneliner"),
    "config": ("scontrol", "show", "config"),
    "accounts": ("sacctmgr", "--noheader", "--parsable2", "show", "assoc", "format=account,partition,qos"),
    "mpi": ("srun", "--mpi=list"),
}


def ask_for_answers() -> Answers:
    """Ask the Slurm of this machine."""
    return Answers(**{name: _ask(_of_this_user(name, command)) for name, command in QUESTIONS.items()})


def read_answers(folder: Path) -> Answers:
    """Return answers kept as <folder>/<question>.txt; one that is not there was not given."""
    paths = {field.name: folder / f"{field.name}.txt" for field in fields(Answers)}
    return Answers(**{name: path.read_text(encoding="utf-8") for name, path in paths.items() if path.is_file()})


def _of_this_user(name: str, command: tuple[str, ...]) -> tuple[str, ...]:
    if name != "accounts":
        return command
    try:
        return (*command, "where", f"user={pwd.getpwuid(os.getuid()).pw_name}")
    except KeyError:  # a number without a name
        return ()


def _ask(command: tuple[str, ...]) -> str:
    """Return what a program prints, on whichever stream (srun's kinds of MPI come on either); "" where it fails."""
    if not command:
        return ""
    try:
        done = subprocess.run(
            command, env=asking_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=TIMEOUT_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
