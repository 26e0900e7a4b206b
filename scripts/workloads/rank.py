"""One process of a cell, whatever its workload: run its share, leave its report or the reason for none."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from contracts.adaptor import Framework, Job, NotAvailable
from contracts.workload import Running
from workloads.child import LAUNCHER_VARIABLE, die_with_parent, limit_memory
from workloads.exchange import Exchange, RankFailure
from workloads.lookup import cell_from_identity, load_workload
from workloads.memory import is_out_of_memory
from workloads.packages import RUN_AGAIN, check_places, check_versions, install_command, lacks_package


def run_rank(
    folder: Path,
    inputs: Path | None,
    memory_limit_gib: float | None,
    load_adaptor: Callable[[str], ModuleType],
    *,
    wrapped: bool,
) -> int:
    """Run this rank of the cell whose launch has the exchange `folder`; return the exit status.

    inputs: what the workload reads (for training the JSON beside the tokens). memory_limit_gib: private memory that the
    process is held to on a CPU. wrapped: a container stands between it and the launcher.
    """
    if not wrapped:
        die_with_parent(int(os.environ[LAUNCHER_VARIABLE]))
    exchange = Exchange(folder)
    cell = cell_from_identity(json.loads(exchange.cell_file.read_text(encoding="utf-8")))
    job = Job(
        cell=cell,
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        memory_limit_gib=memory_limit_gib,
    )
    if memory_limit_gib and cell.device.memory_is_the_hosts:
        limit_memory(memory_limit_gib)
    adaptor = load_adaptor(cell.framework)
    try:
        check_versions(adaptor.FRAMEWORK, cell.environment)
        check_places(adaptor.FRAMEWORK)
        running, report = load_workload(cell.workload).run_rank(job, adaptor, inputs, exchange)
        exchange.write_result(job.rank, report)
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
        close(running)
    except (Exception, SystemExit):
        traceback.print_exc()
        leave_at_once()
    return 0


def leave_at_once() -> NoReturn:
    """End this process as it is: others may wait for this rank in a collective, for which an orderly exit waits too."""
    sys.stderr.flush()
    os._exit(1)


def close(running: Running) -> None:
    """Take down what a rank has open. Its report is kept already: a library that hangs or crashes here costs nothing.

    Ranks wait for one another first, since one that leaves may take down another that has its result still to write.
    """
    running.barrier()
    running.close()


def failure_status(error: BaseException, framework: Framework) -> str:
    """not_available, oom or error."""
    if isinstance(error, NotAvailable) or lacks_package(error, framework):
        return "not_available"
    # The second is the dynamic linker's way to say that a library did not fit. Where torch itself could not be imported
    # for want of memory, it is not among the modules, so nothing depends on that.
    if is_out_of_memory(error) or (isinstance(error, ImportError) and "failed to map segment" in str(error)):
        return "oom"
    return "error"


def describe(error: BaseException, framework: Framework) -> str:
    """The error's first line; the whole of it stands in the log."""
    if lacks_package(error, framework):
        return f"{error}: {install_command(framework)}; {RUN_AGAIN}"
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if isinstance(error, NotAvailable) else f"{type(error).__name__}: {lines[0]}"
