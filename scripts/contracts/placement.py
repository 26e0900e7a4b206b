"""Which ranks run on which node, and under which name a node appears."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

# How its launcher calls the node of a rank.
NODE_VARIABLE = "SCALING_EVAL_NODE"


def ranks_by_node(num_ranks: int, num_nodes: int) -> list[range]:
    """Consecutive ranks for every node, as even as can be, the fuller nodes first: 5 on 2 -> 0-2, 3-4."""
    least, fuller = divmod(num_ranks, num_nodes)
    sizes = [least + (node < fuller) for node in range(num_nodes)]
    starts = [sum(sizes[:node]) for node in range(num_nodes)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


@dataclass(frozen=True)
class Part:
    """Consecutive ranks that one process watches: all of a node's, or one alone under MPI, which starts each by itself.

    first_local: the local rank of the first of them. local_size: ranks on that node.
    """

    node: int
    ranks: range
    first_local: int
    local_size: int


def parts(num_ranks: int, num_nodes: int, *, one_rank_each: bool) -> list[Part]:
    """All ranks, in order."""
    nodes = list(enumerate(ranks_by_node(num_ranks, num_nodes)))
    if not one_rank_each:
        return [Part(node, ranks, 0, len(ranks)) for node, ranks in nodes]
    return [
        Part(node, range(rank, rank + 1), rank - ranks.start, len(ranks)) for node, ranks in nodes for rank in ranks
    ]


def host_name() -> str:
    """The node as its scheduler calls it (several nodes may be one machine), else the machine's name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def node_of_rank(environment: Mapping[str, str] = os.environ) -> str:
    """The node that this rank runs on, as its launcher calls it: a container has a name of its own, which says nothing
    of the machine, and a machine may get another name meanwhile.
    """
    return environment.get(NODE_VARIABLE) or host_name()
