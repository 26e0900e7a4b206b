"""Which ranks run on which node, and under which name a node appears."""

from __future__ import annotations

import os
import socket


def ranks_by_node(num_ranks: int, num_nodes: int) -> list[range]:
    """Consecutive ranks for every node, as even as can be, the fuller nodes first: 5 on 2 -> 0-2, 3-4."""
    least, fuller = divmod(num_ranks, num_nodes)
    sizes = [least + (node < fuller) for node in range(num_nodes)]
    starts = [sum(sizes[:node]) for node in range(num_nodes)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def host_name() -> str:
    """The node as its scheduler calls it (several nodes may be one machine), else the machine's name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
