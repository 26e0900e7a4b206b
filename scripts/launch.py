"""Run one cell: start a training process per GPU, wait for the common end, write its record or the reason for none.

Exit status: 0 with a record (ok, oom, nan, not_available), 1 without, 2 for a mistake in a file or an argument.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atomic import write_json
from corpus.verify import check_tokens
from launching import results
from launching.child import adopt_orphans
from launching.environment import available_cores, free_port, rank_variables, shared_settings, threads_per_process
from launching.exchange import Exchange
from launching.host_load import others_cpu_s, read_host_clock
from launching.host_lock import host_lock
from launching.processes import Limits, LogWriter, RankCommand, run_ranks
from matrix.cells import Cell, cell_from_identity, identity_hash
from matrix.config import check_config
from matrix.sources import code_digests
from matrix.studies import load_system
from matrix.systems import System

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", required=True, help="name of the file in config/systems/")
    parser.add_argument("--cell", required=True, help="the cell's identity as JSON (cell.schema.yaml)")
    parser.add_argument("--model-name", required=True, help="label of the model's shape")
    parser.add_argument("--repeat", type=int, required=True, help="which repeat, from 1")
    parser.add_argument("--tokens", type=Path, required=True, help="JSON beside the token file")
    parser.add_argument("--record", type=Path, required=True, help="where to write the record")
    parser.add_argument("--log", type=Path, required=True, help="where the ranks' output goes")
    parser.add_argument("--time-limit-s", type=float, required=True, help="end the cell after this many seconds")
    args = parser.parse_args()
    adopt_orphans()
    stop = StopRequest()
    try:
        return launch_cell(args, stop)
    except ValueError as error:
        _fail(args, "refused", str(error))
        return 2
    except InterruptedError as error:
        _fail(args, "interrupted", str(error))
        return 1
    except OSError as error:
        kind = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "crash"
        where = f" ({error.filename})" if error.filename else ""
        hint = "; make room and run again" if kind == "disk_full" else ""
        _fail(args, kind, f"{error.strerror or error}{where}{hint}")
        return 1


class StopRequest:
    """Remembers Ctrl-C and SIGTERM, and notices when the process that started the launcher is gone."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._signal: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._remember)

    def _remember(self, number: int, _frame: object) -> None:
        self._signal = number

    def reason(self) -> tuple[str, str] | None:
        if self._signal is not None:
            return "interrupted", f"interrupted by {signal.Signals(self._signal).name}"
        if os.getppid() != self._parent:
            return "interrupted", "the workflow that started it is gone"
        return None


def launch_cell(args: argparse.Namespace, stop: StopRequest) -> int:
    identity = json.loads(args.cell)
    cell_id = identity_hash(identity)
    check_config({"cell_id": cell_id, "model_name": args.model_name, "identity": identity}, "cell", ROOT, "--cell")
    cell = cell_from_identity(identity, args.model_name)
    if cell.num_nodes > 1:
        raise ValueError(f"the cell needs {cell.num_nodes} nodes, and cells are started on one machine only so far")
    system = load_system(args.system, ROOT)
    tokens = verified_tokens(args.tokens)

    args.log.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        args.record.parent.parent / "cell.json",
        {"cell_id": cell_id, "model_name": args.model_name, "identity": identity},
    )
    log = LogWriter(args.log)
    try:
        with host_lock(lambda text: _tell(text, log), lambda: stop.reason() is None):
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
        "tokens": {"split": tokens.split, "sha256": tokens.tokens_sha256, "num_tokens": tokens.num_tokens},
    }
    check_config(record, "record", ROOT, "record")
    write_json(args.record, record)
    (args.record.parent / results.FAILURE_FILE).unlink(missing_ok=True)
    shown = f"{verdict.status}: {verdict.reason}" if verdict.reason else verdict.status
    print(f"{cell.label()}, repeat {args.repeat}: {shown}", flush=True)
    return 0


def run_cell(
    args: argparse.Namespace, cell: Cell, system: System, stop: StopRequest, log: LogWriter
) -> tuple[dict[str, Any], results.Verdict]:
    """Start the ranks on this machine and judge their end; returns the record's facts beside the verdict."""
    started_at = results.now()
    results.clear_former_launch(args.record.parent)
    commit, dirty = results.git_state(ROOT)
    digests = code_digests(cell.framework)
    cores = available_cores()
    threads = threads_per_process(cores, cell.num_gpus)
    settings = shared_settings(threads, system.environment)
    kills_before = results.host_memory_kills()
    clock_before = read_host_clock()
    with tempfile.TemporaryDirectory(prefix=results.RANKS_PREFIX, dir=args.record.parent) as folder:
        exchange = Exchange(Path(folder))
        write_json(exchange.cell_file, json.loads(args.cell))
        ending = run_ranks(
            rank_commands(args, cell, system, exchange, settings),
            Limits(
                system.startup_timeout_s,
                args.time_limit_s,
                stop.reason,
                exchange.has_arrived,
                exchange.has_started,
            ),
            log,
        )
        clock_after = read_host_clock()
        kills_after = results.host_memory_kills()
        killed_for_memory = None not in (kills_before, kills_after) and kills_after > kills_before
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
            "hosts": [socket.gethostname()],
            "num_nodes": 1,
            "node_shared": None,
            "cpu_cores": cores,
            "threads_per_process": threads,
            "environment": settings,
            "memory_limit_gib": system.memory_limit_gib,
            "wall_s": clock_after.wall_s - clock_before.wall_s,
            "others_cpu_s": others_cpu_s(clock_before, clock_after),
            "job_id": None,
        },
        **reported,
    }
    return facts, verdict


def rank_commands(
    args: argparse.Namespace, cell: Cell, system: System, exchange: Exchange, settings: Mapping[str, str]
) -> list[RankCommand]:
    command = [sys.executable, str(ROOT / "scripts" / "train.py"), "--exchange", str(exchange.folder)]
    command += ["--tokens", str(args.tokens), "--launcher", str(os.getpid())]
    if system.memory_limit_gib:
        command += ["--memory-limit-gib", str(system.memory_limit_gib)]
    port = free_port()
    return [
        RankCommand(
            rank,
            command,
            {**os.environ, **settings, **rank_variables(rank, rank, cell.num_gpus, cell.num_gpus, "127.0.0.1", port)},
        )
        for rank in range(cell.num_gpus)
    ]


def verified_tokens(path: Path) -> Any:
    """The token file's facts; a damaged one is set aside, so that the next call makes it anew."""
    try:
        return check_tokens(path)
    except ValueError as error:
        if path.exists():
            path.replace(path.with_name(f"{path.name}.damaged"))
        raise ValueError(f"{error} It was set aside; the next call tokenizes again.") from None


def _fail(
    args: argparse.Namespace,
    kind: str,
    reason: str,
    rank: int | None = None,
    last_lines: tuple[str, ...] = (),
) -> None:
    """Say why, on the terminal and beside the log. The note must not fail for the reason the cell failed."""
    print(f"{args.record.parent}: no record, {kind}: {reason}", file=sys.stderr)
    for line in last_lines:
        print(f"    {line}", file=sys.stderr)
    print(f"    log: {args.log}", file=sys.stderr, flush=True)
    failure = results.Failure(kind, reason, rank, last_lines, results.now(), socket.gethostname(), None)
    try:
        results.write_failure(args.record.parent, failure)
    except OSError as error:
        print(f"    the reason could not be kept beside the log: {error}", file=sys.stderr)


def _tell(text: str, log: LogWriter) -> None:
    log.note(text)
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
