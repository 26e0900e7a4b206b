"""Whether more processes are more hardware on a CPU: the demo's strong scaling from 1 to 2 processes, in turns.

    python benchmarks/process_scaling.py [--framework torch_ddp] [--turns 5]

Each turn measures the demo's cell on one process and on two, through scripts/launch.py, with the threads that
`threads_per_process` of config/systems/local.yaml gives a process. The speedup is the median of the turns' ratios. It
says something on an idle machine of at least two cores only; `others` is how much of the cores other programs used.

Goal: torch_ddp is at least 1.5 times as fast on two processes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from plausible import plausible

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))

from contracts.cell import canonical_json  # noqa: E402
from metrics.circumstances import others_cpu_percent  # noqa: E402
from metrics.timing import timing_of_ranks  # noqa: E402
from planning.studies import load_study  # noqa: E402
from workloads.training.training_cell import TrainingCell  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", default="torch_ddp", help="one of the demo's")
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    one, two = (demo_cell(args.framework, num_gpus) for num_gpus in (1, 2))
    with tempfile.TemporaryDirectory(prefix="scaling-eval-benchmark-") as name:
        folder = Path(name)
        tokens = tokenize(folder)
        turns = [[measure(cell, folder, tokens, turn) for cell in (one, two)] for turn in range(1, args.turns + 1)]
    times_s = [[timing_of_ranks(record["ranks"]).batch_time_s for record in turn] for turn in turns]
    speedups = [plausible("the speedup on two processes", first / second, at_most=4) for first, second in times_s]
    others = max(others_cpu_percent(record["launch"]) or 0 for turn in turns for record in turn)
    first_s, second_s = (statistics.median(times) for times in zip(*times_s, strict=True))
    print("| framework | threads of a process | 1 process, s | 2 processes, s | speedup (lowest to highest) | others |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {args.framework} | {one.threads_per_process or 'shared'} | {first_s:.4f} | {second_s:.4f} "
        f"| {statistics.median(speedups):.2f} ({min(speedups):.2f} to {max(speedups):.2f}) | {others:.0f} % |"
    )


def demo_cell(framework: str, num_gpus: int) -> TrainingCell:
    """Return the demo's strong-scaling cell; SystemExit where this machine would train it on GPUs."""
    study = load_study("demo", "local", ROOT)
    if study.system.device != "cpu":
        raise SystemExit("this machine has GPUs: call it with CUDA_VISIBLE_DEVICES= to measure the CPU")
    cells = [
        planned.cell
        for planned in study.runnable()
        if planned.comparison == "strong_scaling" and planned.cell.framework == framework
    ]
    found = [cell for cell in cells if cell.num_gpus == num_gpus]
    if not found:
        raise SystemExit(f"the demo has no strong-scaling cell of {framework} on {num_gpus} processes")
    return found[0]


def tokenize(folder: Path) -> Path:
    """Make the bundled corpus's tokens; returns their JSON file."""
    output = folder / "train.bin"
    command = [sys.executable, SCRIPTS / "tokenize_corpus.py", "--corpus", "bundled", "--output", output]
    subprocess.run([str(part) for part in command], check=True, stderr=subprocess.DEVNULL)
    return output.with_suffix(".json")


def measure(cell: TrainingCell, folder: Path, tokens: Path, turn: int) -> dict[str, Any]:
    """Return the record of one run of the cell."""
    record = folder / f"{cell.num_gpus}" / f"repeat{turn}" / "record.json"
    command = [sys.executable, SCRIPTS / "launch.py", "--system", "local", "--cell", canonical_json(cell.identity())]
    command += ["--model-name", cell.model.name, "--repeat", turn, "--tokens", tokens, "--record", record]
    command += ["--log", record.parent / "log.txt", "--time-limit-s", 600]
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    return json.loads(record.read_text())


if __name__ == "__main__":
    main()
