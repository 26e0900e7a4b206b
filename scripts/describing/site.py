"""A cluster as far as Slurm's answers tell: the partition to measure in, its nodes and GPUs, what they allow."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from contracts.errors import ConfigError, nearest
from describing.answers import Answers
from launcher.slurm.partitions import Partition, fields_of, read_partitions

# One kind of GPU of a node: gpu:a100:4(S:0-1), gpu:4, gpu:a100:no_consume:4.
GPUS = re.compile(r"gpu(?::(?P<type>[^:(),]+))?(?::no_consume)?:(?P<count>\d+)(?:\([^)]*\))?")
# Kinds of MPI under which MPICH's ranks, which AxoNN's environment brings, can meet, the better first.
MPI_KINDS = ("pmi2", "pmix")


@dataclass(frozen=True)
class Node:
    """A node as scontrol shows it. memory_mb: without what Slurm keeps for itself."""

    name: str
    partitions: tuple[str, ...]
    gpu_type: str  # empty where GPUs have none, or there are none
    gpus: int
    gres: str
    cpus: int
    memory_mb: int
    sockets: int
    features: tuple[str, ...]


@dataclass(frozen=True)
class Site:
    """Hold what the draft of a system file is made from.

    nodes: the partition's nodes that all have the same kind and number of GPUs.
    """

    cluster: str
    partition: Partition
    others: tuple[str, ...]  # names of the other partitions
    nodes: tuple[Node, ...]
    kinds: tuple[str, ...]  # of all GPUs in the partition, with their numbers, where there are several
    accounts: tuple[str, ...]
    qualities: tuple[str, ...]
    has_accounting: bool
    mpi: tuple[str, ...]
    config: Mapping[str, str]

    @property
    def gpus(self) -> int:
        return self.nodes[0].gpus

    @property
    def gpu_type(self) -> str:
        return self.nodes[0].gpu_type


def site_of(answers: Answers, wanted: str | None = None) -> Site:
    """Return the site that the answers describe, for the partition `wanted`, or else for the one with most GPUs.

    Raises ConfigError where Slurm shows no partition, or not the one that is wanted.
    """
    partitions = read_partitions(answers.partitions)
    nodes = read_nodes(answers.nodes)
    partition = choose_partition(partitions, nodes, wanted)
    inside = [node for node in nodes if partition.name in node.partitions]
    if not inside:
        raise ConfigError(f"Slurm shows no node of partition {partition.name}; name another one with --partition")
    groups: dict[tuple[str, int], list[Node]] = defaultdict(list)
    for node in inside:
        groups[node.gpu_type, node.gpus].append(node)
    chosen = max(groups.values(), key=lambda group: (sum(node.gpus for node in group), len(group)))
    kinds = tuple(f"{len(group)} x {group[0].gres or 'no GPU'}" for group in groups.values()) if len(groups) > 1 else ()
    accounts, qualities = read_accounts(answers.accounts, partition)
    config = read_config_lines(answers.config)
    return Site(
        cluster=config.get("ClusterName", ""),
        partition=partition,
        others=tuple(other.name for other in partitions if other != partition),
        nodes=tuple(chosen),
        kinds=kinds,
        accounts=accounts,
        qualities=qualities,
        has_accounting="slurmdbd" in config.get("AccountingStorageType", ""),
        mpi=read_mpi(answers.mpi),
        config=config,
    )


def choose_partition(partitions: Sequence[Partition], nodes: Iterable[Node], wanted: str | None) -> Partition:
    """Return the partition to measure in: of those that are up, the one with most GPUs; of equal ones the default, or
    the one that allows the longest jobs.
    """
    if not partitions:
        raise ConfigError("Slurm shows no partition here: run this on a login node of the cluster")
    names = [partition.name for partition in partitions]
    if wanted is not None:
        found = next((partition for partition in partitions if partition.name == wanted), None)
        if found is None:
            raise ConfigError(f"--partition: there is no {wanted!r}{nearest(wanted, names)}")
        return found
    gpus: Counter[str] = Counter()
    for node in nodes:
        gpus.update(dict.fromkeys(node.partitions, node.gpus))
    open_ones = [partition for partition in partitions if partition.is_up] or list(partitions)
    return max(open_ones, key=lambda p: (gpus[p.name], p.is_default, p.most_minutes is None, p.most_minutes or 0.0))


def read_nodes(text: str) -> list[Node]:
    nodes = []
    for line in text.splitlines():
        fields = fields_of(line)
        if "NodeName" not in fields:
            continue
        gres = "" if fields.get("Gres") in (None, "(null)", "") else fields["Gres"]
        found = list(GPUS.finditer(gres))
        most = max(found, key=lambda match: int(match["count"]), default=None)
        features = fields.get("AvailableFeatures", "(null)")
        nodes.append(
            Node(
                name=fields["NodeName"],
                partitions=tuple(fields.get("Partitions", "").split(",")),
                gpu_type=(most["type"] or "") if most else "",
                gpus=int(most["count"]) if most else 0,
                gres=gres,
                cpus=int(fields.get("CPUEfctv", fields.get("CPUTot", "1"))),
                memory_mb=int(fields.get("RealMemory", "0")) - int(fields.get("MemSpecLimit", "0")),
                sockets=int(fields.get("Sockets", "1")),
                features=() if features == "(null)" else tuple(features.split(",")),
            )
        )
    return nodes


def read_accounts(text: str, partition: Partition) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the user's accounts that the partition takes, and their qualities of service."""
    allowed = partition.fields.get("AllowAccounts", "ALL")
    accounts: dict[str, None] = {}
    qualities: dict[str, None] = {}
    for line in text.splitlines():
        words = line.strip().split("|")
        if len(words) != 3 or (words[1] and words[1] != partition.name):
            continue
        if allowed == "ALL" or words[0] in allowed.split(","):
            accounts[words[0]] = None
            qualities |= dict.fromkeys(word for word in words[2].split(",") if word)
    return tuple(accounts), tuple(qualities)


def read_config_lines(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def read_mpi(text: str) -> tuple[str, ...]:
    """Return the kinds of MPI in what srun prints: a heading, then one a line, or all behind a colon."""
    words = re.findall(r"[a-z0-9_]+", text.lower())
    return tuple(kind for kind in MPI_KINDS if kind in words)
