"""One training process of a cell, as launch.py starts it: build the engine, run the batches, report raw facts."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from contracts.adaptor import Engine, Framework, Job, NotAvailable
from contracts.cell import cell_from_identity
from contracts.placement import node_of_rank
from corpus.verify import open_tokens
from planning.adaptors import load_adaptor
from workloads.child import LAUNCHER_VARIABLE, die_with_parent, limit_memory
from workloads.exchange import Exchange, RankFailure
from workloads.memory import is_out_of_memory
from workloads.process_facts import process_facts, speed_variables
from workloads.training.batches import BatchReader
from workloads.training.loop import NUM_BATCHES, Timings, run_batches

# not_available is a record, and records are kept.
RUN_AGAIN = "then status.py forget --status not_available has the cell run again"
MATMUL_SIZE = 2048
MATMUL_REPEATS = 4
# A line takes some ten microseconds.
LONG_BATCH_S = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exchange", type=Path, required=True, help="folder shared with the launcher; holds cell.json")
    parser.add_argument("--tokens", type=Path, required=True, help="the token file's JSON")
    parser.add_argument("--memory-limit-gib", type=float, help="private memory this process is held to on a CPU")
    parser.add_argument("--wrapped", action="store_true", help="a container stands between it and the launcher")
    args = parser.parse_args()

    if not args.wrapped:
        die_with_parent(int(os.environ[LAUNCHER_VARIABLE]))
    exchange = Exchange(args.exchange)
    cell = cell_from_identity(json.loads(exchange.cell_file.read_text(encoding="utf-8")))
    job = Job(
        cell=cell,
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        memory_limit_gib=args.memory_limit_gib,
    )
    if args.memory_limit_gib and cell.device == "cpu":
        limit_memory(args.memory_limit_gib)
    adaptor = load_adaptor(cell.framework)
    try:
        check_versions(adaptor.FRAMEWORK, cell.environment)
        check_places(adaptor.FRAMEWORK)
        engine, result = train(job, adaptor, args.tokens, exchange)
        exchange.write_result(job.rank, result)
    except (Exception, SystemExit) as error:  # some frameworks leave where others raise
        traceback.print_exc()
        failure = RankFailure(
            job.rank, failure_status(error, adaptor.FRAMEWORK), describe(error, adaptor.FRAMEWORK), time.time()
        )
        try:
            exchange.write_failure(failure)
        except OSError as full:
            print(f"the reason could not be kept: {full}", file=sys.stderr)
        leave_at_once()
    try:
        close(engine)
    except (Exception, SystemExit):
        traceback.print_exc()
        leave_at_once()
    return 0


def leave_at_once() -> NoReturn:
    """End this process as it is: others may wait for this rank in a collective, for which an orderly exit waits too."""
    sys.stderr.flush()
    os._exit(1)


def close(engine: Engine) -> None:
    """Take the engine down, when what it measured is kept already: a library that hangs or crashes here costs nothing.

    Ranks wait for one another first, since one that leaves may take down another that has its result still to write.
    """
    engine.barrier()
    engine.close()


def train(job: Job, adaptor: Any, tokens: Path, exchange: Exchange) -> tuple[Engine, dict[str, Any]]:
    """Run the cell on this rank; return the engine, still open, and this rank's part of the record."""
    given = speed_variables()
    exchange.mark_arrived(job.rank)
    engine: Engine = adaptor.create_engine(job)
    exchange.mark_started(job.rank)
    process = process_facts(given, getattr(engine, "num_threads", None))
    cell = job.cell
    reader = BatchReader(
        open_tokens(tokens),
        cell.model.seq_length,
        cell.model.vocab_size,
        cell.global_batch_size,
        engine.data_rank,
        engine.data_size,
    )
    read = reader.read if job.rank else telling_progress(reader.read)
    timings = run_batches(engine, read)
    matmul_seconds: list[float] = []
    if cell.device == "cpu":
        engine.barrier()  # the peak is what a process reaches while all of them multiply
        matmul_seconds = engine.matmul_seconds(MATMUL_SIZE, MATMUL_REPEATS)
    result = {
        "rank": rank_facts(job, engine, timings, matmul_seconds, process),
        "world_size": job.world_size,
        "settings": {"initial_weights": engine.initial_weights, **engine.settings},
        "versions": versions(adaptor.FRAMEWORK),
        "reported": {name: speed for name, speed in engine.reported_by_framework().items() if math.isfinite(speed)},
    }
    return engine, result


def telling_progress(read: Callable[[int], np.ndarray], long_s: float = LONG_BATCH_S) -> Callable[[int], np.ndarray]:
    """Wrap the reader of a batch so that it says into the log which batch begins, where batches are so long that this
    takes nothing of them. It is said while the loop waits for input, outside of a batch's time.
    """
    read_at = math.inf

    def read_and_tell(index: int) -> np.ndarray:
        nonlocal read_at
        began, read_at = read_at, time.perf_counter()
        if read_at - began >= long_s:
            print(f"batch {index + 1} of {NUM_BATCHES}", flush=True)
        return read(index)

    return read_and_tell


def rank_facts(
    job: Job, engine: Engine, timings: Timings, matmul_seconds: list[float], process: dict[str, Any]
) -> dict[str, Any]:
    """An entry of the record's `ranks`."""
    return {
        "rank": job.rank,
        "local_rank": job.local_rank,
        "host": node_of_rank(),
        "device_name": engine.device_name,
        "data_rank": engine.data_rank,
        "data_size": engine.data_size,
        "batch_start_s": timings.batch_start_s,
        "batch_end_s": timings.batch_end_s,
        "input_time_s": timings.input_time_s,
        "losses": [json_number(loss) for loss in timings.losses],
        "peak_memory_bytes": timings.peak_memory_bytes,
        "matmul_size": MATMUL_SIZE if matmul_seconds else None,
        "matmul_seconds": matmul_seconds,
        "process": process,
        "clock": {"monotonic_s": time.perf_counter(), "unix_s": time.time()},
    }


def json_number(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinities; they become the strings that float() reads back."""
    return value if value is None or math.isfinite(value) else str(value)


def versions(framework: Framework) -> dict[str, str | None]:
    """Versions of Python, the kernel and every distribution the adaptor names; None where one is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "kernel": platform.release()}
    for package in framework.packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def check_versions(framework: Framework, environment: Mapping[str, Any]) -> None:
    """Raise NotAvailable where a package that the framework names is there in another version than the cell says: the
    record would be kept under a version that was not measured.
    """
    pinned = dict(line.split("==", 1) for line in environment.get("requirements", ()) if "==" in line)
    for package, installed in versions(framework).items():
        wanted = pinned.get(package)
        # What follows a plus says how it was built (2.13.0+cu126).
        if wanted and installed and installed.partition("+")[0] != wanted:
            file = f"envs/{framework.environment}.txt"
            where = importlib.metadata.distribution(package).locate_file("").absolute()
            if entry := python_path_entry(where):
                raise NotAvailable(
                    f"{package} {installed} lies in {where}, which PYTHONPATH puts first ({entry}), and {file} says "
                    f"{package}=={wanted}: unset PYTHONPATH ({RUN_AGAIN})"
                )
            raise NotAvailable(
                f"{package} {installed} is installed and {file} says {package}=={wanted} (it lies in {where}): "
                f"{install_command(framework)} ({RUN_AGAIN}), or write the installed version into that file "
                f"(its cells are then new ones)"
            )


def check_places(framework: Framework) -> None:
    """Raise NotAvailable where PYTHONPATH puts a copy of a package, of which no version is known, before the one that
    is installed.
    """
    for package in framework.packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError, ImportError, ValueError):
            spec = importlib.util.find_spec(package.replace("-", "_").lower())
            origin = Path(spec.origin).absolute() if spec and spec.origin and spec.has_location else None
            installed = importlib.metadata.distribution(package).locate_file("").absolute()
            if origin and not origin.is_relative_to(installed) and (entry := python_path_entry(origin)):
                raise NotAvailable(
                    f"{package} would be loaded from {origin}, since PYTHONPATH names {entry}, and not from "
                    f"{installed}, where it is installed: unset PYTHONPATH ({RUN_AGAIN})"
                )


def python_path_entry(path: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the entry of PYTHONPATH under which `path` lies; None where it lies under none."""
    entries = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return next((entry for entry in entries if Path(path).is_relative_to(Path(entry).absolute())), None)


def failure_status(error: BaseException, framework: Framework) -> str:
    """not_available, oom or error."""
    if isinstance(error, NotAvailable) or lacks_package(error, framework):
        return "not_available"
    # The second is the dynamic linker's way to say that a library did not fit. Where torch itself could not be imported
    # for want of memory, it is not among the modules, so nothing depends on that.
    if is_out_of_memory(error) or (isinstance(error, ImportError) and "failed to map segment" in str(error)):
        return "oom"
    return "error"


def install_command(framework: Framework) -> str:
    """For the Python that this runs under, which is seldom the one that `pip` on PATH belongs to."""
    return f"{sys.executable} -m pip install -r envs/{framework.environment}.txt"


def lacks_package(error: BaseException, framework: Framework) -> bool:
    """Whether a package of the framework is not installed, as opposed to a module that its code should have."""
    # A distribution's module has its name, or that of its family (megatron-core).
    modules = {name for p in framework.packages for name in (p.replace("-", "_").lower(), p.partition("-")[0].lower())}
    return isinstance(error, ModuleNotFoundError) and (error.name or "").lower() in modules


def describe(error: BaseException, framework: Framework) -> str:
    """The error's first line; the whole of it stands in the log."""
    if lacks_package(error, framework):
        return f"{error}: {install_command(framework)}; {RUN_AGAIN}"
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if isinstance(error, NotAvailable) else f"{type(error).__name__}: {lines[0]}"


if __name__ == "__main__":
    sys.exit(main())
