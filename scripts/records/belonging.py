"""Say why a record cannot be the one of the cell in whose folder it lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from contracts.cell import Cell
from contracts.errors import LONGEST_VALUE, shown_value
from contracts.placement import ranks_by_node
from corpus.verify import TRAINING_SPLIT

# Statuses under which every rank ran to its end.
COMPLETE = ("ok", "nan")
# A message names so many hosts; a cell may have ninety-six.
HOSTS_SHOWN = 4


def measured_elsewhere(record: Mapping[str, Any], cell: Cell, system: str) -> str | None:
    """Return in words that a record is of another system or model label than the folder it lies in, or None.

    It is a good record of the same cell: somebody renamed a system's file or a model, or copied results of another
    system. Measuring all of it again is for a person to decide.
    """
    facts = (("system", record["launch"]["system"], system), ("model", record["model_name"], cell.model.name))
    wrong = [
        f"{what} {shown_value(found)}, and it lies among those of {shown_value(wanted)}"
        for what, found, wanted in facts
        if found != wanted
    ]
    if not wrong:
        return None
    return (
        f"it was measured as {' and as '.join(wrong)}; it stays and does not count: give the renamed its old name "
        f"again, or move the record away to have the cell measured"
    )


def misplacements(record: Mapping[str, Any], cell: Cell) -> Iterator[str]:
    """Yield what the record says of itself that is not so of this cell, and that no renaming explains."""
    launch, tokens = record["launch"], record["tokens"]
    facts = (
        ("framework", record["framework"], cell.framework),
        ("number of nodes", launch["num_nodes"], cell.num_nodes),
        ("number of host names", len(launch["hosts"]), cell.num_nodes),
        ("split of the corpus", tokens["split"], TRAINING_SPLIT),
        # What an older record does not hold costs it nothing.
        *(
            (f"{key} of the corpus", tokens.get(key), cell.corpus.get(key))
            for key in ("source", "revision", "tokenizer")
        ),
    )
    for what, found, wanted in facts:
        if found is not None and wanted is not None and found != wanted:
            yield f"its {what} is {shown_value(found)}, and this cell's is {shown_value(wanted)}"
    yield from _ranks(record, cell)


def _ranks(record: Mapping[str, Any], cell: Cell) -> Iterator[str]:
    """Of a cell that ran to its end every rank left its account; of another some may have, before the others failed."""
    ranks = record["ranks"]
    numbers = [rank["rank"] for rank in ranks]
    every = list(range(cell.num_gpus))
    complete = record["status"] in COMPLETE
    if (complete and numbers != every) or numbers != sorted(set(numbers) & set(every)):
        yield f"it does not hold every rank of {cell.num_gpus} once and in order"
    local = {rank: rank - on_node.start for on_node in ranks_by_node(cell.num_gpus, cell.num_nodes) for rank in on_node}
    for rank in ranks:
        number = rank["rank"]
        if rank["local_rank"] != local[number]:
            yield f"rank {number} has the local rank {rank['local_rank']}, and its place on its node is {local[number]}"
    if not complete:
        return  # nodes that could not tell their names any more go by their number (launcher/step.py)
    degree = cell.layout.data_parallel
    shares = {(rank["data_rank"], rank["data_size"]) for rank in ranks}
    if shares != {(share, degree) for share in range(degree)}:
        yield f"its ranks did not read the {degree} shares of the batch, each of {degree}"
    named, used = set(record["launch"]["hosts"]), {rank["host"] for rank in ranks}
    if named != used:
        yield f"its ranks ran on {_listed(used)}, and the launcher used {_listed(named)}"


def _listed(hosts: set[str]) -> str:
    names = sorted(hosts)
    more = f" and {len(names) - HOSTS_SHOWN} more" if len(names) > HOSTS_SHOWN else ""
    return f"{', '.join(name[:LONGEST_VALUE] for name in names[:HOSTS_SHOWN])}{more}" or "no host"
