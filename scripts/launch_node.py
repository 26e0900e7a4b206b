"""The part of a cell that runs on one node of a Slurm job; launch.py starts it once per node with srun."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from launching.child import adopt_orphans
from launching.exchange import Exchange
from launching.node import NodeJob, run_node
from launching.processes import Limits, LogWriter
from launching.stop import StopRequest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--exchange", type=Path, required=True, help="folder shared with the launcher; holds node-job.json"
    )
    args = parser.parse_args()
    adopt_orphans()
    stop = StopRequest((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    exchange = Exchange(args.exchange)
    job = NodeJob(**exchange.read_node_job())
    # The time limits are the launcher's, which sees all nodes; here only the own ranks' ends and a signal count.
    limits = Limits(math.inf, math.inf, stop.reason, exchange.has_arrived, exchange.has_started)
    report = run_node(job, int(os.environ["SLURM_NODEID"]), limits, LogWriter(sys.stdout))
    exchange.write_node_report(report.node, asdict(report))
    # srun --kill-on-bad-exit ends the other nodes when one of them fails.
    return 1 if report.kind else 0


if __name__ == "__main__":
    sys.exit(main())
