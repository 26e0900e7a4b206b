"""Under which circumstances a record was measured: the columns that say so, and what decides whether rows are alike.

Newer records say in `process` of each rank what the process really had; of an older one only what the launcher gave is
known (`launch.environment`). What a record does not hold stays empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contracts.cell import Cell
from metrics.alike import Conditions, Fact
from workloads.process_facts import MPI_PREFIXES

Row = dict[str, Any]

# A desktop's own processes stay below; another job does not.
BUSY_HOST_PERCENT = 10.0
STAND_IN_NOTE = "a package that only knows CUDA ran on a CPU: for correctness, its times say nothing of its speed"
# Among a record's versions, and no package.
_OF_THE_HOST = ("python", "kernel")
_NOT_SET = "not set"
_AS_THREADS = "the number of threads"
_THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def circumstance_columns(record: Mapping[str, Any], cell: Cell) -> Row:
    """Return the columns that say where and with what a record was measured, and their notes."""
    launch, ranks = record["launch"], record["ranks"]
    commit = record["git_commit"]
    variables = _variables(record)
    row: Row = {
        "num_nodes": launch["num_nodes"],
        "hosts": ";".join(launch["hosts"]),
        "device_name": _device_name(ranks),
        "threads_per_process": effective_threads(record),
        "cpu_cores": launch["cpu_cores"],
        "host_cores": _one_number(_of_processes(ranks, "host_cores")),
        "binding": _joined(_of_processes(ranks, "affinity_cores")),
        "variables": ";".join(f"{name}={value}" for name, value in sorted(variables.items())),
        "processor": _processor(record, cell),
        "kernel": _joined(_of_processes(ranks, "kernel")) or record["versions"].get("kernel"),
        "driver": _joined(_of_processes(ranks, "driver")),
        "python": _joined(_of_processes(ranks, "python")) or record["versions"].get("python"),
        "tokens_sha256": record["tokens"]["sha256"],
        "initial_weights": record["settings"]["initial_weights"],
        "started_at": record["started_at"],
        "git_commit": f"{commit}-dirty" if commit and record["git_dirty"] else commit,
        "versions": ";".join(f"{name} {version}" for name, version in sorted(record["versions"].items()) if version),
        "notes": ["the nodes were shared with other jobs"] if launch["node_shared"] else [],
    }
    row["cuda_stand_in"] = bool(record["settings"].get("cuda_stand_in"))
    if row["cuda_stand_in"]:
        row["notes"].append(STAND_IN_NOTE)
    others = others_cpu_percent(launch)
    row["others_cpu_percent"] = others
    if others is not None and others > BUSY_HOST_PERCENT:
        row["notes"].append(f"the host was busy: others used {others:.0f} % of its cores, so times may be too long")
    if not cell.device.is_accelerator:
        processes, cores = processes_on_a_node(record, cell), launch["cpu_cores"]
        threads = row["threads_per_process"] or launch["threads_per_process"]
        row["oversubscribed"] = processes * threads > cores
        if row["oversubscribed"]:
            row["notes"].append(f"oversubscribed: more threads ({processes} x {threads}) than cores ({cores})")
    return row


def conditions(record: Mapping[str, Any], cell: Cell, names: Mapping[str, bool], *, is_local: bool) -> Conditions:
    """Return what decides whether a row may be set beside others (metrics.alike).

    `names` are the `variable_names` of all rows of the comparison. `is_local`: the cells run on this very machine, so
    another host's name is worth a word.
    """
    launch, ranks, versions = record["launch"], record["ranks"], record["versions"]
    processes, cores = processes_on_a_node(record, cell), launch["cpu_cores"]
    packages = {name: version for name, version in versions.items() if version and name not in _OF_THE_HOST}
    device_name = _device_name(ranks)
    told = {
        "processor cores of the host": _fact(_joined(_of_processes(ranks, "host_cores"))),
        "kernel": _fact(_joined(_of_processes(ranks, "kernel")) or versions.get("kernel")),
        "driver": _fact(_joined(_of_processes(ranks, "driver"))),
        "Python": _fact(_joined(_of_processes(ranks, "python")) or versions.get("python")),
        "host": _fact(" + ".join(sorted(launch["hosts"])) if is_local else None),
    }
    processor = _processor(record, cell)
    variables = {name: _variable_fact(record, name, given) for name, given in names.items()}
    # What an MPI is told is nothing to a framework that does not run under it: its own rows alone must agree.
    of_mpi = {f"variable {name}": fact[0] for name, fact in variables.items() if fact and name.startswith(MPI_PREFIXES)}
    facts: dict[str, Fact | None] = {
        "device kind": _fact(device_name),
        "threads per process": _threads_fact(record, processes, cores),
        "cores of a process": _binding_fact(ranks, processes, cores),
        "available cores": (str(cores), f"{cores / processes:g} a process"),
        # On a CPU the processor is the device, which is named once.
        "processor": _fact(None if processor == device_name else processor),
        "token file": _fact(record["tokens"]["sha256"][:12]),
        **{f"variable {name}": fact for name, fact in variables.items() if not name.startswith(MPI_PREFIXES)},
    }
    return Conditions(cell.framework, facts, packages | of_mpi, told)


def variable_names(records: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Return the variables that these records speak of, by name: whether a launcher gave it to the processes of one."""
    names: dict[str, bool] = {}
    for record in records:
        names |= {name: names.get(name, False) for name in _variables(record)}
        names |= dict.fromkeys(record["launch"]["environment"], True)
    return names


def effective_threads(record: Mapping[str, Any]) -> int | None:
    """Return the threads that every process really had; None where they differ or no record tells."""
    threads = _of_processes(record["ranks"], "threads")
    if threads:
        return _one_number(threads)
    first, _, _ = record["launch"]["environment"].get("OMP_NUM_THREADS", "").partition(",")
    return int(first) if first.strip().isdecimal() else None


def others_cpu_percent(launch: Mapping[str, Any]) -> float | None:
    """Return the share of the launcher's node's cores that others used meanwhile; None where the host did not tell."""
    if launch["others_cpu_s"] is None or launch["wall_s"] <= 0:
        return None
    counted = launch.get("others_cpu_cores")
    percent = 100 * launch["others_cpu_s"] / (launch["wall_s"] * (counted or launch["cpu_cores"]))
    # Older records counted all cores of the host and do not say how many, which may be more than the launcher had.
    return percent if counted or percent <= 100 else None


def processes_on_a_node(record: Mapping[str, Any], cell: Cell) -> int:
    """Return how many processes the fullest node had."""
    planned = max(1, cell.num_gpus // max(1, record["launch"]["num_nodes"]))
    return max(Counter(rank["host"] for rank in record["ranks"]).values(), default=planned)


def _threads_fact(record: Mapping[str, Any], processes: int, cores: int) -> Fact | None:
    threads = effective_threads(record)
    # As a number, or as the share of the cores that follows from the number of processes.
    if threads is None:
        several = _of_processes(record["ranks"], "threads")
        if not several:
            return None
        # 16 ranks on three nodes: more threads for a process where there are five than where there are six.
        on_node = Counter(rank["host"] for rank in record["ranks"])
        is_share = several == [max(1, cores // on_node[rank["host"]]) for rank in record["ranks"]]
        shown = _joined(several)
    else:
        is_share = threads == max(1, cores // processes)
        shown = str(threads)
    return shown, "an equal share of the cores" if is_share else shown


def _binding_fact(ranks: Sequence[Mapping[str, Any]], processes: int, cores: int) -> Fact | None:
    bound = _of_processes(ranks, "affinity_cores")
    if not bound:
        return None
    shown = _joined(bound)
    # As a number; as all cores that there were; or as the share that follows from the number of processes.
    all_of_them = "all available" if min(bound) >= cores else shown
    return shown, all_of_them, "an equal share" if set(bound) == {max(1, cores // processes)} else shown


def _variable_fact(record: Mapping[str, Any], name: str, is_given: bool) -> Fact | None:
    """Return a variable's value, or that it only says what the threads say; None where the record cannot tell.

    `is_given`: the launcher gives it to some rows, so where it is not among those given, it was not set.
    """
    if name in record["settings"]:
        return None  # what an engine chooses for itself, such as Megatron-LM CUDA's queues, is part of the framework
    launch = record["launch"]
    own = [rank.get("process", {}).get("variables") for rank in record["ranks"]]
    if own and None not in own:
        values = {variables.get(name, launch["environment"].get(name, _NOT_SET)) for variables in own}
        if len(values) > 1:
            return None  # each rank's own, by its number
        value = values.pop()
    elif is_given:
        value = launch["environment"].get(name, _NOT_SET)
    else:
        return None  # of what a process inherited, this record tells nothing
    if name in _THREAD_COUNTS and value in (str(effective_threads(record)), str(launch["threads_per_process"])):
        # Judged with the threads. It is no unknown value: a row in which it says something else is told.
        return (_AS_THREADS,)
    return _fact(value)


def _variables(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables as the processes had them, or else as they were given; of several values all."""
    held: dict[str, set[str]] = {}
    for rank in record["ranks"]:
        for name, value in rank.get("process", {}).get("variables", {}).items():
            held.setdefault(name, set()).add(value)
    # What a process says of itself counts for more than what it was given.
    return {**record["launch"]["environment"], **{name: _joined([*values]) for name, values in held.items()}}


def _device_name(ranks: Sequence[Mapping[str, Any]]) -> str:
    return " + ".join(sorted({rank["device_name"] for rank in ranks}))


def _processor(record: Mapping[str, Any], cell: Cell) -> str:
    return _joined(_of_processes(record["ranks"], "processor")) or (
        "" if cell.device.is_accelerator else _device_name(record["ranks"])
    )


def _of_processes(ranks: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    """Return what each rank's process says of itself, empty unless all of them do."""
    values = [rank.get("process", {}).get(key) for rank in ranks]
    return [] if None in values else values


def _joined(values: Sequence[Any]) -> str:
    return " + ".join(str(value) for value in sorted(set(values)))


def _one_number(values: Sequence[int]) -> int | None:
    return values[0] if len(set(values)) == 1 else None


def _fact(value: str | None) -> Fact | None:
    # Notes are joined by "; ".
    return (value.replace(";", ","),) if value else None
