"""One part of a cell in the process that srun or mpiexec started for it: a node's ranks, or one rank under MPI."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from launcher.part import LaunchPlan, run_part
from launcher.processes import Limits, LogWriter
from launcher.starters import SLURM_VARIABLE, part_index
from launcher.stop import StopRequest
from workloads.child import adopt_orphans, die_with_parent
from workloads.exchange import SPOKEN_REPORT, Exchange


def run_own_part(folder: Path, variables: Sequence[str]) -> int:
    """Run this process's part of the launch whose exchange is `folder`; return the exit status.

    variables: those of which one says which part this is.
    """
    if SLURM_VARIABLE not in variables:  # Slurm ends what it started; MPI's starter may be killed itself
        die_with_parent(os.getppid())
    adopt_orphans()
    stop = StopRequest((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    exchange = Exchange(folder)
    job = LaunchPlan(**exchange.read_plan())
    # The time limits are the launcher's, which sees all nodes; here only the own ranks' ends and a signal count.
    limits = Limits(
        math.inf,
        math.inf,
        stop.reason,
        exchange.has_arrived,
        exchange.has_started,
        exchange.has_result,
        lambda: exchange.has_all_results(job.num_gpus),
    )
    report = run_part(job, part_index(variables), limits, LogWriter(sys.stdout))
    try:
        exchange.write_part_report(report.part, asdict(report))
    except OSError as error:  # a full disk: the launcher reads what is printed here as well
        print(f"{SPOKEN_REPORT}{json.dumps(asdict(report))}", flush=True)
        print(f"the part's report could not be written: {error}", flush=True)
    # The starter ends the other parts when one of them fails.
    return 1 if report.kind else 0
