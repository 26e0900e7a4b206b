"""What Slurm's partitions allow, read from `scontrol show partition --oneliner`, and jobs that they let never start."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.slurm.asking import QueueError, ask_slurm
from planning.job_resources import cell_resources
from planning.plan import Study, record_path, without_record

UNLIMITED = ("UNLIMITED", "INFINITE", "NONE", "N/A")
FIELD = re.compile(r"(\w[\w:]*)=(.*?)(?=\s+\w[\w:]*=|\s*$)")


@dataclass(frozen=True)
class Partition:
    """A partition; None where it has no limit, or names none."""

    name: str
    is_default: bool
    is_up: bool
    most_minutes: float | None
    most_nodes: int | None
    num_nodes: int | None
    nodes: str
    fields: Mapping[str, str]


def fields_of(line: str) -> dict[str, str]:
    """Return the `Key=value` pairs of one line of scontrol; a value may have spaces (OS=Linux 6.1 #1 SMP)."""
    return dict(FIELD.findall(line))


def read_partitions(text: str) -> list[Partition]:
    """Return the partitions that scontrol shows, in its order."""
    found = []
    for line in text.splitlines():
        fields = fields_of(line)
        if "PartitionName" not in fields:
            continue
        found.append(
            Partition(
                name=fields["PartitionName"],
                is_default=fields.get("Default") == "YES",
                is_up=fields.get("State", "UP") == "UP",
                most_minutes=minutes_of(fields.get("MaxTime", "")),
                most_nodes=_number(fields.get("MaxNodes", "")),
                num_nodes=_number(fields.get("TotalNodes", "")),
                nodes=fields.get("Nodes", ""),
                fields=fields,
            )
        )
    return found


def minutes_of(text: str) -> float | None:
    """Return a time limit as Slurm writes it (`30`, `1:30`, `12:00:00`, `2-00:00:00`) in minutes; None without one."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if text in UNLIMITED or not all(part.isdecimal() for part in parts) or not (days.isdecimal() or not days):
        return None
    numbers = [int(part) for part in parts]
    if days:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:  # minutes[:seconds]
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    return 1440 * int(days or 0) + 60 * hours + minutes + seconds / 60


def limits_lines(study: Study, results: Path, in_queue: Collection[Path], silence: Sequence[str]) -> list[str]:
    """Return what a call says of missing cells whose jobs the partition would never start, and what to change.

    silence: why Slurm gave no answer before; then nothing is asked.
    """
    site, system = study.system.slurm, study.system
    assert site is not None
    try:
        if silence:
            raise QueueError(silence[0])
        partitions = read_partitions(ask_slurm(["scontrol", "show", "partition", "--oneliner"]))
    except QueueError as error:
        return [f"whether Slurm's limits allow these jobs is not known: {error}"]
    asked = site.partition.split(",") if site.partition else [p.name for p in partitions if p.is_default]
    named = [partition for partition in partitions if partition.name in asked]
    if site.partition and not named:
        known = ", ".join(partition.name for partition in partitions)
        return [f"no job can start: there is no partition {site.partition}; `slurm.partition` may be {known}"]
    missing = [p for p in without_record(study, results) if record_path(results, system.name, p) not in in_queue]
    wanted: dict[tuple[int, int], int] = defaultdict(int)
    for planned in missing:
        resources = cell_resources(site, planned.cell, 60 * study.limit_minutes(planned.cell))
        wanted[resources["runtime"], planned.cell.num_nodes] += 1
    return _too_much(wanted, named, site.job_overhead_minutes)


def _too_much(wanted: Mapping[tuple[int, int], int], named: Sequence[Partition], overhead: float) -> list[str]:
    lines = []
    for (minutes, nodes), number in sorted(wanted.items()):
        refusals = [refusal for partition in named if (refusal := _refusal(partition, minutes, nodes, overhead))]
        if refusals and len(refusals) == len(named):
            jobs = f"{number} job{'s' if number > 1 else ''} of {nodes} node{'s' if nodes > 1 else ''}"
            lines.append(f"{jobs} and {minutes} minutes can never start: {'; '.join(refusals)}")
    return lines


def _refusal(partition: Partition, minutes: int, nodes: int, overhead: float) -> str:
    if partition.most_minutes is not None and minutes > partition.most_minutes:
        return (
            f"partition {partition.name} allows {partition.most_minutes:g} minutes; lower the study's "
            f"`time_limit_minutes` (the job has {overhead:g} more, `slurm.job_overhead_minutes`), or name another "
            f"`slurm.partition`"
        )
    most_nodes = min(_known([partition.most_nodes, partition.num_nodes]), default=None)
    if most_nodes is not None and nodes > most_nodes:
        return (
            f"partition {partition.name} gives a job at most {most_nodes} nodes; name another `slurm.partition`, or "
            f"lower `num_nodes` of the system file"
        )
    return ""


def _known(numbers: Iterable[int | None]) -> list[int]:
    return [number for number in numbers if number is not None]


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
