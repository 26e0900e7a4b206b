"""The text of a system file for a site: each value with where it is from, and what only a person knows marked."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from describing.site import Site
from describing.slurm_gpus import matching_devices

MARK = "ONLY YOU KNOW"
# In place of a GPU's name that Slurm does not tell: it decides nothing that is measured, since the peak of a record is
# that of the GPU that the driver names, and has no memory_gib, so that nothing is predicted from it.
PLACEHOLDER = "A100"


@dataclass(frozen=True)
class Entry:
    """One key of the file. why: where its value is from, or what is to be decided; several lines stand above it."""

    key: str
    value: Any
    why: str
    marked: bool = False

    def lines(self, indent: str = "") -> list[str]:
        shown = yaml.safe_dump(self.value, default_flow_style=True, width=1000).removesuffix("\n...\n").strip()
        why = f"{MARK}: {self.why}" if self.marked else self.why
        return [*(f"{indent}# {line}" for line in wrapped(why)), f"{indent}{self.key}: {shown}"]


@dataclass(frozen=True)
class Draft:
    """The file, and what is marked in it."""

    text: str
    marked: tuple[str, ...]


def draft_of(site: Site, hardware: Mapping[str, Any]) -> Draft:
    """Return a system file that can be used as it is, as far as Slurm tells what it needs."""
    device = _device(site, hardware)
    general = [
        Entry("description", _description(site, device), "one line for tables"),
        *device,
        _num_nodes(site),
        Entry("startup_timeout_s", 600, "for Python to start on all nodes from a shared file system"),
    ]
    slurm = [*_gpu_request(site), *_cores_and_memory(site), *_charges(site), *_mpi(site)]
    notes = [*_environment_notes(), *_notes(site)]
    lines = [
        f"# A draft by scripts/describe_cluster.py, from what Slurm says of partition {site.partition.name}. Every key",
        f"# is explained in config/README.md. Look at the lines with {MARK}, then at what a dry run says",
        "# (`snakemake --profile slurm -n`).",
    ]
    for entry in general:
        lines += entry.lines()
    lines += [f"# {line}" for note in notes for line in wrapped(note)]
    lines.append("slurm:")
    for entry in slurm:
        lines += entry.lines("  ")
    marked = tuple(f"{entry.key}: {entry.why}" for entry in (*general, *slurm) if entry.marked)
    of_notes = tuple(note.removeprefix(f"{MARK}: ") for note in notes if note.startswith(MARK))
    return Draft("\n".join(lines) + "\n", marked + of_notes)


def _description(site: Site, device: Iterable[Entry]) -> str:
    where = f"partition {site.partition.name}" + (f" of {site.cluster}" if site.cluster else "")
    if not site.gpus:
        return f"CPU processes, {where}"
    known = next((entry.value[0] for entry in device if entry.key == "devices" and not entry.marked), "GPU")
    return f"{site.gpus} x {known} a node, {where}"


def _device(site: Site, hardware: Mapping[str, Any]) -> list[Entry]:
    node = site.nodes[0]
    if not site.gpus:
        return [
            Entry(
                "device",
                "cpu",
                f"Slurm knows of no GPU on the nodes of {site.partition.name} (scontrol show node {node.name} has no "
                f"Gres=gpu). Where they have GPUs all the same: `device: cuda`, `devices:` with their name in "
                f"config/hardware.yaml, and their number in gpus_per_node",
                marked=True,
            ),
            Entry("gpus_per_node", node.sockets, f"Sockets={node.sockets} of node {node.name}: a process a processor"),
        ]
    shown = f"Gres={node.gres} of node {node.name}"
    features = f", AvailableFeatures={','.join(node.features)}" if node.features else ""
    found = matching_devices([site.gpu_type, *node.features], hardware)
    if len(found) == 1:
        kind = Entry("devices", found, f"{shown}{features}; the name is that of config/hardware.yaml")
    elif found:
        kind = Entry("devices", found[:1], f"{shown}{features}, which may be {' or '.join(found)}", marked=True)
    else:
        kind = Entry(
            "devices",
            [PLACEHOLDER],
            f"which GPU this is: {shown}{features} does not tell. Give its name in config/hardware.yaml "
            f"(`nvidia-smi -L` on a node shows it); what stands here only keeps its place",
            marked=True,
        )
    several = f"; the partition has {', '.join(site.kinds)}, a system has one kind" if site.kinds else ""
    return [
        Entry("device", "cuda", shown),
        kind,
        Entry("gpus_per_node", site.gpus, f"{shown}{several}", marked=bool(site.kinds)),
    ]


def _num_nodes(site: Site) -> Entry:
    number, most = len(site.nodes), site.partition.most_nodes
    name = site.partition.name
    if most is not None and most < number:
        return Entry("num_nodes", max(1, most), f"MaxNodes={most} of partition {name}, which has {number} of them")
    return Entry("num_nodes", number, f"so many such nodes are in partition {name}; how many one job may have there")


def _gpu_request(site: Site) -> list[Entry]:
    entries = [Entry("partition", site.partition.name, _partition_words(site))]
    shown = f"Gres={site.nodes[0].gres} of node {site.nodes[0].name}"
    if not site.gpus:
        why = "no GPU is a resource of Slurm, so jobs have whole nodes"
        return [*entries, Entry("gpu_request", "none", why), Entry("exclusive", True, "as gpu_request none needs it")]
    if "-" in site.gpu_type:
        entries.append(Entry("gpu_request", "gpus_per_node", f"{shown}: Snakemake's plugin takes no `-` in a gres"))
    else:
        entries.append(Entry("gpu_request", "gres", shown))
    if site.gpu_type:
        entries.append(Entry("gpu_type", site.gpu_type, shown))
    why = "whole nodes, so that no other job shares network and memory with a timed cell; they are charged whole"
    return [*entries, Entry("exclusive", True, why)]


def _partition_words(site: Site) -> str:
    partition = site.partition
    limit = partition.fields.get("MaxTime", "unknown")
    default = ", the default" if partition.is_default else ""
    others = f"; other partitions: {', '.join(site.others)}" if site.others else ""
    return (
        f"scontrol show partition: MaxTime={limit}{default}{others}. A study's time_limit_minutes and "
        f"job_overhead_minutes (5) together must not be above MaxTime"
    )


def _cores_and_memory(site: Site) -> list[Entry]:
    processes = site.gpus or site.nodes[0].sockets
    least = min(site.nodes, key=lambda node: node.cpus)
    cores = Entry(
        "cpus_per_gpu",
        max(1, least.cpus // processes),
        f"{least.cpus} CPUs of node {least.name}, divided by {processes} (hardware threads, where nodes have them)",
    )
    smallest = min(site.nodes, key=lambda node: node.memory_mb)
    memory_mb, where = smallest.memory_mb, f"RealMemory of node {smallest.name}, without what Slurm keeps for itself"
    limit = site.partition.fields.get("MaxMemPerNode", "")
    if limit.isdecimal() and 0 < int(limit) < memory_mb:
        memory_mb, where = int(limit), f"MaxMemPerNode of partition {site.partition.name}"
    share = math.floor(10 * memory_mb / 1024 / processes) / 10
    return [cores, *([Entry("memory_per_gpu_gib", share, f"{memory_mb} MB, {where}")] if share > 0 else [])]


def _charges(site: Site) -> list[Entry]:
    if len(site.accounts) == 1:
        return [Entry("account", site.accounts[0], "sacctmgr show assoc: your only one here")]
    return []


def _mpi(site: Site) -> list[Entry]:
    return [Entry("mpi", site.mpi[0], "srun --mpi=list")] if site.mpi else []


def _environment_notes() -> list[str]:
    return [
        f"{MARK}: the network between nodes. Where NCCL picks the wrong one (`ip link` on a node lists them), name it "
        f"here: `environment: {{NCCL_SOCKET_IFNAME: ib0, GLOO_SOCKET_IFNAME: ib0}}`",
        f"{MARK}: what has to be loaded on a node first, such as `setup: [module purge, module load CUDA/12.6]`",
    ]


def _notes(site: Site) -> list[str]:
    notes = []
    if len(site.accounts) > 1:
        notes.append(
            f"{MARK}: which account is charged, `account:` under slurm, of {', '.join(site.accounts)} (sacctmgr show "
            f"assoc); without it Slurm takes your default"
        )
    elif not site.accounts and site.has_accounting:
        notes.append(f"{MARK}: which account is charged, `account:` under slurm; sacctmgr shows none for you")
    if len(site.qualities) > 1:
        notes.append(f"qualities of service that you may name under slurm as `qos:`: {', '.join(site.qualities)}")
    if site.partition.fields.get("OverSubscribe", "").startswith("EXCLUSIVE"):
        notes.append(f"OverSubscribe=EXCLUSIVE: partition {site.partition.name} hands out whole nodes anyway")
    return notes


def wrapped(text: str, width: int = 110) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
