"""Run one process of a cell, as launch.py starts it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from planning.adaptors import load_adaptor
from workloads.rank import run_rank


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exchange", type=Path, required=True, help="folder shared with the launcher; holds cell.json")
    parser.add_argument("--tokens", type=Path, help="the token file's JSON, or what else the workload reads")
    parser.add_argument("--memory-limit-gib", type=float, help="private memory this process is held to on a CPU")
    parser.add_argument("--wrapped", action="store_true", help="a container stands between it and the launcher")
    args = parser.parse_args()
    return run_rank(args.exchange, args.tokens, args.memory_limit_gib, load_adaptor, wrapped=args.wrapped)


if __name__ == "__main__":
    sys.exit(main())
