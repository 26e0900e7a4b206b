"""One cell from its identity to its record, or to the reason why there is none."""

from __future__ import annotations

import json
import secrets
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.atomic import write_json
from contracts.cell import Cell, identity_hash
from contracts.outcomes import EndKind
from contracts.placement import host_name
from contracts.project_files import CODE
from launcher import verdicts as results
from launcher.host_lock import host_lock
from launcher.interpreter import training_command
from launcher.login_shell import dropped_settings
from launcher.part import LaunchPlan, run_part, silent_part
from launcher.processes import Ending, Limits, LogWriter
from launcher.slurm.job_endings import OtherJobs, with_slurms_account
from launcher.slurm.queue import current_job_id, job_nodes
from launcher.starters import Starter, find_mpiexec, mpiexec, srun
from launcher.step import node_address, run_step
from launcher.stop import StopRequest
from planning.adaptors import load_adaptor
from planning.job_resources import gpus_on_node
from planning.studies import load_system
from settings.config import check_config
from settings.systems import System
from workloads.child import adopt_orphans
from workloads.exchange import Exchange
from workloads.lookup import cell_from_identity, load_workload
from workloads.rendezvous import LOOPBACK


@dataclass(frozen=True)
class Order:
    """What is to be run, and where its files go: the command line of launch.py, under the same names.

    cell: the identity as JSON. tokens: what the workload reads, if anything. silent: the caller tells what the record
    or failure.json says. root: the project (contracts/project_files.py). code_digests: for a framework, the digests of
    the code that measures its cells.
    """

    system: str
    system_file: Path | None
    cell: str
    model_name: str
    repeat: int
    tokens: Path | None
    record: Path
    log: Path
    time_limit_s: float
    silent: bool
    root: Path
    code_digests: Callable[[str], Mapping[str, str]]


def run_order(order: Order) -> int:
    """Run one cell; return the exit status: 0 with a record (ok, oom, nan, not_available), 1 without, 2 for a mistake
    in a file or an argument.
    """
    adopt_orphans()
    stop = StopRequest((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        return launch_cell(order, stop)
    except ValueError as error:
        _fail(order, EndKind.REFUSED, str(error))
        return 2
    except InterruptedError as error:
        _fail(order, EndKind.INTERRUPTED, str(error))
        return 1
    except OSError as error:
        kind = EndKind.DISK_FULL if error.errno in results.DISK_FULL else EndKind.CRASH
        where = f" ({error.filename})" if error.filename else ""
        hint = "; make room and run again" if kind == EndKind.DISK_FULL else ""
        _fail(order, kind, f"{error.strerror or error}{where}{hint}")
        return 1
    except Exception as error:
        traceback.print_exc()
        _fail(
            order,
            EndKind.CRASH,
            f"the launcher itself failed, which is a fault of ours: {type(error).__name__}: {error}",
        )
        return 1


def launch_cell(order: Order, stop: StopRequest) -> int:
    identity = json.loads(order.cell)
    cell_id = identity_hash(identity)
    stands_for = {"cell_id": cell_id, "model_name": order.model_name, "identity": identity}
    check_config(stands_for, "cell", order.root, "--cell")
    cell = cell_from_identity(identity, order.model_name)
    system = load_system(order.system, order.root, order.system_file)
    check_place(cell, system)
    inputs = load_workload(cell.workload).record_facts(cell, order.tokens)

    order.log.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        order.record.parent.parent / "cell.json",
        stands_for,
    )
    # Slurm keeps its jobs apart by itself.
    alone = nullcontext() if system.slurm else host_lock(_tell, lambda: stop.reason() is None)
    with alone:
        if order.record.is_file():  # another call's, which came since this one was planned; or asked for by force
            _tell(
                f"{order.record}: it is there already, so nothing is measured (scripts/status.py forget sets it aside)"
            )
            return 0
        log = LogWriter(order.log.open("w", encoding="utf-8", errors="replace"))
        try:
            facts, verdict = run_cell(order, cell, system, stop, log)
        finally:
            log.close()
    if not verdict.status:
        _fail(order, verdict.kind, verdict.reason, verdict.rank, verdict.last_lines)
        return 1
    record = {
        "record_version": 1,
        "cell_id": cell_id,
        "repeat": order.repeat,
        "framework": cell.framework,
        "model_name": order.model_name,
        "identity": identity,
        "status": verdict.status,
        "reason": verdict.reason,
        **facts,
        **inputs,
    }
    check_config(record, "record", order.root, "record")
    write_record(order.record, record)
    (order.record.parent / results.FAILURE_FILE).unlink(missing_ok=True)
    if not order.silent:
        shown = f"{verdict.status}: {verdict.reason}" if verdict.reason else verdict.status
        print(f"{cell.label()}, repeat {order.repeat}: {shown}", flush=True)
    return 0


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write what was measured; where that cannot be, keep it elsewhere here, and raise OSError that says where."""
    try:
        write_json(path, record)
    except OSError as error:
        try:
            kept = Path(tempfile.mkdtemp(prefix="scaling-eval-")) / path.name
            write_json(kept, record)
        except OSError:
            raise error from None
        raise OSError(
            error.errno,
            f"{error.strerror}; what was measured is kept as {kept} on {host_name()} and counts when it is moved to "
            f"{path}",
        ) from None


def run_cell(
    order: Order, cell: Cell, system: System, stop: StopRequest, log: LogWriter
) -> tuple[dict[str, Any], results.Verdict]:
    """Start the ranks on all nodes and judge their end; returns the record's facts beside the verdict."""
    started_at = results.now()
    results.clear_former_launch(order.record.parent, current_job_id())
    commit, dirty = results.git_state(CODE)
    digests = order.code_digests(cell.framework)
    # A network file system keeps what a process of another node still holds: no reason to lose what was measured.
    with tempfile.TemporaryDirectory(
        prefix=results.RANKS_PREFIX, dir=order.record.parent, ignore_cleanup_errors=True
    ) as folder:
        exchange = Exchange(Path(folder))
        write_json(exchange.cell_file, json.loads(order.cell))
        limits = Limits(
            system.startup_timeout_s,
            order.time_limit_s,
            stop.reason,
            exchange.has_arrived,
            exchange.has_started,
            exchange.has_result,
            lambda: exchange.has_all_results(cell.num_gpus),
        )
        job = launch_plan(order, cell, system, exchange)
        _, _, given = job.shares(gpus_on_node(cell))
        if dropped := dropped_settings(given, in_slurm=job.in_slurm):
            log.note(dropped)
        others = OtherJobs(system)
        starter, lacking = starter_of(order, job, cell, system)
        if lacking:
            reports = [silent_part(job, 0, host_name(), 0.0)]
            verdict = results.Verdict("not_available", lacking)
        else:
            if starter:
                ending, reports, out_of_memory = run_step(exchange, job, starter, CODE / "scripts", limits, log)
            else:
                report = run_part(job, 0, limits, log)
                ending, reports, out_of_memory = report.ending, [report], False
            if ending.kind and exchange.has_all_results(cell.num_gpus):
                log.note(f"every rank had left its result before this, so the results count: {ending.reason}")
                ending = Ending()
            killed_for_memory = out_of_memory or any(report.killed_for_memory for report in reports)
            verdict = results.judge(ending, exchange, cell, killed_for_memory)
        reported = results.gathered(exchange, cell.num_gpus)
    facts = {
        "started_at": started_at,
        "finished_at": results.now(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "git_commit": commit,
        "git_dirty": dirty,
        "code": digests,
        "launch": {
            "system": system.name,
            "num_nodes": cell.num_nodes,
            "node_shared": others.shared(),
            "memory_limit_gib": system.memory_limit_gib,
            "job_id": current_job_id(),
            **results.launch_facts(reports),
        },
        **reported,
    }
    return facts, verdict


def launch_plan(order: Order, cell: Cell, system: System, exchange: Exchange) -> LaunchPlan:
    """What every node is told. The launcher runs on the first node, so the ranks meet at its address."""
    adaptor = load_adaptor(cell.framework)
    script = [str(CODE / "scripts" / "train.py"), "--exchange", str(exchange.folder.resolve())]
    if order.tokens:
        script += ["--tokens", str(order.tokens.resolve())]
    if system.memory_limit_gib:
        script += ["--memory-limit-gib", str(system.memory_limit_gib)]
    return LaunchPlan(
        command=training_command(system, adaptor.FRAMEWORK.environment, script, order.root),
        num_gpus=cell.num_gpus,
        num_nodes=cell.num_nodes,
        master_address=node_address(LOOPBACK) if system.slurm else LOOPBACK,
        meeting_folder=str(exchange.folder.resolve()),
        token=secrets.token_hex(8),
        environment=system.environment,
        cores=system.slurm.cpus_per_gpu * gpus_on_node(cell) if system.slurm else None,
        threads=cell.threads_per_process,
        gpus_visible=bool(system.slurm and system.slurm.gpu_request != "none"),
        mpi=adaptor.FRAMEWORK.mpi,
        in_slurm=system.slurm is not None,
        memory_limited=system.memory_limit_gib is not None and cell.device.memory_is_the_hosts,
        startup_timeout_s=system.startup_timeout_s,
    )


def starter_of(order: Order, job: LaunchPlan, cell: Cell, system: System) -> tuple[Starter | None, str]:
    """What starts the ranks, None where this process does so itself; or in words what is lacking for it."""
    if system.slurm:
        return srun(job, job_nodes(current_job_id()), system.slurm.mpi), ""
    if not job.mpi:
        return None, ""
    environment = load_adaptor(cell.framework).FRAMEWORK.environment
    path = find_mpiexec(system, environment, order.root)
    if path is None:
        return None, (
            f"{cell.framework} runs under MPI, and there is no mpiexec beside the Python of the environment "
            f"{environment} nor on PATH: pip install mpich, or load the site's MPI in `setup` of the system file"
        )
    return mpiexec(job, path, host_name()), ""


def check_place(cell: Cell, system: System) -> None:
    """The launcher must run where the system file says that cells run."""
    if system.slurm and current_job_id() is None:
        raise ValueError(
            f"the cells of system {system.name} are Slurm jobs (config/systems/{system.name}.yaml has `slurm`), and "
            f"this is none: run snakemake --profile slurm"
        )
    if cell.num_nodes > 1 and not system.slurm:
        raise ValueError(f"the cell needs {cell.num_nodes} nodes, and system {system.name} is this machine alone")


def _fail(
    order: Order,
    kind: str,
    reason: str,
    rank: int | None = None,
    last_lines: tuple[str, ...] = (),
) -> None:
    """Say why, beside the log and on the terminal, unless the caller reads it from there.

    The note must not fail for the reason the cell failed.
    """
    if not last_lines and kind != EndKind.REFUSED:  # a refused cell's log is a former try's
        last_lines = results.log_tail(order.log, rank)
    failure = with_slurms_account(
        results.Failure(kind, reason, rank, last_lines, results.now(), host_name(), current_job_id())
    )
    lines = [f"{order.record.parent}: no record, {failure.kind}: {failure.full_reason}"]
    lines += [*(f"    {line}" for line in last_lines), f"    log: {order.log}"]
    is_kept = True
    try:
        results.write_failure(order.record.parent, failure)
    except OSError as error:
        lines.append(f"    the reason could not be kept beside the log: {error}")
        is_kept = False
    if not (order.silent and is_kept):
        print("\n".join(lines), file=sys.stderr, flush=True)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
