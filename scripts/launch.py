"""Run one cell: start a training process per GPU, wait for the common end, write its record or the reason for none.

Exit status: 0 with a record (ok, oom, nan, not_available), 1 without, 2 for a mistake in a file or an argument.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import tempfile
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from contracts.atomic import write_json
from contracts.cell import Cell, cell_from_identity, identity_hash
from contracts.placement import host_name
from contracts.project_files import CODE, project_folder
from corpus.verify import UnreadableTokens, check_corpus, check_tokens
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
from planning.tokens_needed import TokenCount, check_enough_tokens
from records.code_digests import code_digests
from settings.config import check_config
from settings.systems import System
from workloads.child import adopt_orphans
from workloads.exchange import Exchange
from workloads.rendezvous import LOOPBACK

ROOT = project_folder()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", required=True, help="name of the file in config/systems/")
    parser.add_argument("--system-file", type=Path, help="that file as it was when the cell was submitted")
    parser.add_argument("--cell", required=True, help="the cell's identity as JSON (cell.schema.yaml)")
    parser.add_argument("--model-name", required=True, help="label of the model's shape")
    parser.add_argument("--repeat", type=int, required=True, help="which repeat, from 1")
    parser.add_argument("--tokens", type=Path, required=True, help="JSON beside the token file")
    parser.add_argument("--record", type=Path, required=True, help="where to write the record")
    parser.add_argument("--log", type=Path, required=True, help="where the ranks' output goes")
    parser.add_argument("--time-limit-s", type=float, required=True, help="end the cell after this many seconds")
    parser.add_argument("--silent", action="store_true", help="the caller tells what the record or failure.json says")
    args = parser.parse_args()
    adopt_orphans()
    stop = StopRequest((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        return launch_cell(args, stop)
    except ValueError as error:
        _fail(args, "refused", str(error))
        return 2
    except InterruptedError as error:
        _fail(args, "interrupted", str(error))
        return 1
    except OSError as error:
        kind = "disk_full" if error.errno in results.DISK_FULL else "crash"
        where = f" ({error.filename})" if error.filename else ""
        hint = "; make room and run again" if kind == "disk_full" else ""
        _fail(args, kind, f"{error.strerror or error}{where}{hint}")
        return 1
    except Exception as error:
        traceback.print_exc()
        _fail(args, "crash", f"the launcher itself failed, which is a fault of ours: {type(error).__name__}: {error}")
        return 1


def launch_cell(args: argparse.Namespace, stop: StopRequest) -> int:
    identity = json.loads(args.cell)
    cell_id = identity_hash(identity)
    check_config({"cell_id": cell_id, "model_name": args.model_name, "identity": identity}, "cell", ROOT, "--cell")
    cell = cell_from_identity(identity, args.model_name)
    system = load_system(args.system, ROOT, args.system_file)
    check_place(cell, system)
    tokens = verified_tokens(args.tokens)
    check_corpus(tokens, cell.corpus, args.tokens)
    check_enough_tokens("--tokens", str(args.tokens), TokenCount(tokens.num_tokens, exact=True), [cell])

    args.log.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        args.record.parent.parent / "cell.json",
        {"cell_id": cell_id, "model_name": args.model_name, "identity": identity},
    )
    # Slurm keeps its jobs apart by itself.
    alone = nullcontext() if system.slurm else host_lock(_tell, lambda: stop.reason() is None)
    with alone:
        if args.record.is_file():  # another call's, which came since this one was planned; or asked for by force
            _tell(
                f"{args.record}: it is there already, so nothing is measured (scripts/status.py forget sets it aside)"
            )
            return 0
        log = LogWriter(args.log.open("w", encoding="utf-8", errors="replace"))
        try:
            facts, verdict = run_cell(args, cell, system, stop, log)
        finally:
            log.close()
    if not verdict.status:
        _fail(args, verdict.kind, verdict.reason, verdict.rank, verdict.last_lines)
        return 1
    record = {
        "record_version": 1,
        "cell_id": cell_id,
        "repeat": args.repeat,
        "framework": cell.framework,
        "model_name": args.model_name,
        "identity": identity,
        "status": verdict.status,
        "reason": verdict.reason,
        **facts,
        "tokens": {
            "split": tokens.split,
            "sha256": tokens.tokens_sha256,
            "num_tokens": tokens.num_tokens,
            **tokens.identity,
        },
    }
    check_config(record, "record", ROOT, "record")
    write_record(args.record, record)
    (args.record.parent / results.FAILURE_FILE).unlink(missing_ok=True)
    if not args.silent:
        shown = f"{verdict.status}: {verdict.reason}" if verdict.reason else verdict.status
        print(f"{cell.label()}, repeat {args.repeat}: {shown}", flush=True)
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
    args: argparse.Namespace, cell: Cell, system: System, stop: StopRequest, log: LogWriter
) -> tuple[dict[str, Any], results.Verdict]:
    """Start the ranks on all nodes and judge their end; returns the record's facts beside the verdict."""
    started_at = results.now()
    results.clear_former_launch(args.record.parent, current_job_id())
    commit, dirty = results.git_state(CODE)
    digests = code_digests(cell.framework)
    # A network file system keeps what a process of another node still holds: no reason to lose what was measured.
    with tempfile.TemporaryDirectory(
        prefix=results.RANKS_PREFIX, dir=args.record.parent, ignore_cleanup_errors=True
    ) as folder:
        exchange = Exchange(Path(folder))
        write_json(exchange.cell_file, json.loads(args.cell))
        limits = Limits(
            system.startup_timeout_s,
            args.time_limit_s,
            stop.reason,
            exchange.has_arrived,
            exchange.has_started,
            exchange.has_result,
            lambda: exchange.has_all_results(cell.num_gpus),
        )
        job = launch_plan(args, cell, system, exchange)
        _, _, given = job.shares(gpus_on_node(cell))
        if dropped := dropped_settings(given, in_slurm=job.in_slurm):
            log.note(dropped)
        others = OtherJobs(system)
        starter, lacking = starter_of(job, cell, system)
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
            verdict = results.judge(ending, exchange, cell.num_gpus, cell.layout.data_parallel, killed_for_memory)
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


def launch_plan(args: argparse.Namespace, cell: Cell, system: System, exchange: Exchange) -> LaunchPlan:
    """What every node is told. The launcher runs on the first node, so the ranks meet at its address."""
    adaptor = load_adaptor(cell.framework)
    script = [str(CODE / "scripts" / "train.py"), "--exchange", str(exchange.folder.resolve())]
    script += ["--tokens", str(args.tokens.resolve())]
    if system.memory_limit_gib:
        script += ["--memory-limit-gib", str(system.memory_limit_gib)]
    return LaunchPlan(
        command=training_command(system, adaptor.FRAMEWORK.environment, script, ROOT),
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
        memory_limited=system.memory_limit_gib is not None and cell.device == "cpu",
        startup_timeout_s=system.startup_timeout_s,
    )


def starter_of(job: LaunchPlan, cell: Cell, system: System) -> tuple[Starter | None, str]:
    """What starts the ranks, None where this process does so itself; or in words what is lacking for it."""
    if system.slurm:
        return srun(job, job_nodes(current_job_id()), system.slurm.mpi), ""
    if not job.mpi:
        return None, ""
    environment = load_adaptor(cell.framework).FRAMEWORK.environment
    path = find_mpiexec(system, environment, ROOT)
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


def verified_tokens(path: Path) -> Any:
    """The token file's facts; a damaged one is set aside, so that the next call makes it anew."""
    try:
        return check_tokens(path)
    except UnreadableTokens:
        raise  # what one node cannot read may be whole
    except ValueError as error:
        if not path.exists():
            raise
        path.replace(path.with_name(f"{path.name}.damaged"))
        raise ValueError(f"{error}; it was set aside, and the next call tokenizes again") from None


def _fail(
    args: argparse.Namespace,
    kind: str,
    reason: str,
    rank: int | None = None,
    last_lines: tuple[str, ...] = (),
) -> None:
    """Say why, beside the log and on the terminal, unless the caller reads it from there.

    The note must not fail for the reason the cell failed.
    """
    if not last_lines and kind != "refused":  # a refused cell's log is a former try's
        last_lines = results.log_tail(args.log, rank)
    failure = with_slurms_account(
        results.Failure(kind, reason, rank, last_lines, results.now(), host_name(), current_job_id())
    )
    lines = [f"{args.record.parent}: no record, {failure.kind}: {failure.full_reason}"]
    lines += [*(f"    {line}" for line in last_lines), f"    log: {args.log}"]
    is_kept = True
    try:
        results.write_failure(args.record.parent, failure)
    except OSError as error:
        lines.append(f"    the reason could not be kept beside the log: {error}")
        is_kept = False
    if not (args.silent and is_kept):
        print("\n".join(lines), file=sys.stderr, flush=True)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
