"""What the workflow itself costs: seconds a cell spends outside its training, Snakemake's share, 10,000 cells planned.

    python benchmarks/workflow.py [--cells 1000] [--planned 10000]

Runs in a copy of the project in a temporary folder and prints a Markdown table. Needs envs/workflow.txt.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "workflow"))

from plausible import plausible  # noqa: E402

from project_copy import copy_project_files  # noqa: E402

SHAPE = {"num_layers": 2, "hidden_size": 8, "num_heads": 2, "seq_length": 8, "vocab_size": 50304, "source": "benchmark"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000, help="trivial cells to run through Snakemake")
    parser.add_argument("--launches", type=int, default=5, help="real cells to start without Snakemake")
    parser.add_argument("--planned", type=int, default=10_000, help="cells of the dry run")
    parser.add_argument("--only", choices=("launch", "trivial", "planning"), help="one part of it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scaling-eval-benchmark-") as folder:
        parts = {
            "launch": partial(launch_rows, cells=args.launches),
            "trivial": partial(trivial_rows, cells=args.cells),
            "planning": partial(planning_rows, cells=args.planned),
        }
        rows = [
            row
            for name, measure in parts.items()
            if args.only in (None, name)
            for row in measure(copy_project_files(ROOT, Path(folder) / name))
        ]
    print("| what | measured | goal |")
    print("|---|---|---|")
    for what, measured, goal in rows:
        print(f"| {what} | {measured} | {goal} |")


Row = tuple[str, str, str]


def launch_rows(root: Path, cells: int) -> list[Row]:
    """A real cell: what launch.py takes beside the time its training processes live."""
    write_study(root, models=1, micro_batches=1, num_gpus=[1], repeats=cells)
    snakemake(root, "benchmark")
    outside, inside = [], []
    for path in sorted(root.glob("results/local/cells/**/record.json")):
        record = json.loads(path.read_text())
        path.unlink()  # launch.py leaves a record alone that is there already, and measures nothing
        command = [sys.executable, "scripts/launch.py", *record["command"][1:]]
        began = time.monotonic()
        subprocess.run(command, cwd=root, check=True, capture_output=True)
        total = time.monotonic() - began
        processes = json.loads(path.read_text())["launch"]["wall_s"]
        inside.append(plausible("the time of a cell's training processes", processes))
        outside.append(plausible("the time of a cell outside its training processes", total - processes))
    outside_s, inside_s = statistics.median(outside), statistics.median(inside)
    share = 100 * outside_s / (outside_s + inside_s)
    return [
        ("a cell outside its training processes (launch.py)", f"{outside_s:.2f} s", ""),
        ("of that cell's whole time", f"{share:.0f} %", ""),
    ]


def trivial_rows(root: Path, cells: int) -> list[Row]:
    """The real rules with `touch` for a launcher: all that is left is Snakemake and a shell."""
    rule = root / "workflow" / "rules" / "train.smk"
    text = rule.read_text()
    begin = text.index('        f"exec python {SCRIPTS}/launch.py')
    rule.write_text(f'{text[:begin]}        "touch {{output.record}}"\n')
    write_study(root, models=1, micro_batches=1, num_gpus=[1], repeats=cells)
    targets = [str(path) for path in planned_records(root)]
    assert len(targets) == cells
    (token_file,) = {tokens_of(root)}
    (root / token_file).parent.mkdir(parents=True)
    (root / token_file).touch()
    began = time.monotonic()
    snakemake(root, *targets)
    total = time.monotonic() - began
    began = time.monotonic()
    snakemake(root, *targets, "--dry-run")
    start = time.monotonic() - began
    began = time.monotonic()
    subprocess.run(f"for i in $(seq {cells}); do bash -c 'set -euo pipefail; touch x'; done", shell=True, cwd=root)
    shells = time.monotonic() - began
    per_cell_ms = 1000 * plausible(f"Snakemake's share of {cells} cells", total - start - shells) / cells
    return [(f"Snakemake, a cell of {cells} (start-up and shells subtracted)", f"{per_cell_ms:.0f} ms", "20 ms")]


def planning_rows(root: Path, cells: int) -> list[Row]:
    write_study(root, models=cells // 20, micro_batches=4, num_gpus=[1, 2, 4, 8, 16], repeats=1)
    began = time.monotonic()
    output = snakemake(root, "benchmark", "--dry-run", "--quiet", "rules")
    seconds = time.monotonic() - began
    assert f"train_cell {cells}" in " ".join(output.split()), output[-2000:]
    bare = bare_planning_s(root.parent / "bare", cells)
    ratio = plausible("the ratio of the dry runs", seconds / bare, above=0.5)
    return [
        (f"dry run of {cells:,} cells", f"{seconds:.1f} s", "20 s"),
        (f"dry run of a bare Snakefile with {cells:,} jobs", f"{bare:.1f} s", ""),
        (
            "ratio of the two",
            f"{ratio:.2f}",
            "20 s on a machine that needs 5.4 s for the bare one: 3.7",
        ),
    ]


def bare_planning_s(folder: Path, jobs: int) -> float:
    """The least that Snakemake takes on this machine for as many jobs: one wildcard, no function, no parameter."""
    folder.mkdir()
    (folder / "Snakefile").write_text(
        f"rule all:\n    input: [f'out/{{i}}' for i in range({jobs})]\n\n"
        "rule one:\n    output: 'out/{i}'\n    shell: 'touch {output}'\n"
    )
    command = [sys.executable, "-m", "snakemake", "--cores", "all", "--scheduler", "greedy", "-n", "--quiet", "rules"]
    began = time.monotonic()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.monotonic() - began


def write_study(root: Path, models: int, micro_batches: int, num_gpus: list[int], repeats: int) -> None:
    names = [f"shape-{index}" for index in range(models)]
    shapes = {name: {**SHAPE, "num_layers": index + 1} for index, name in enumerate(names)}
    write_yaml(root / "config" / "models.yaml", shapes)
    write_yaml(root / "config" / "systems" / "local.yaml", {"device": "cpu", "cpu_processes": max(num_gpus)})
    for study in (root / "config" / "studies").glob("*.yaml"):
        study.unlink()
    study = {
        "title": "benchmark",
        "paper": "axonn",
        "tables": ["strong_scaling"],
        "frameworks": {"torch_ddp": {"layouts": [{"micro_batch_size": 2**i} for i in range(micro_batches)]}},
        "global_batch_size": 128,
        "repeats": repeats,
        "comparisons": {"main": {"scaling": "strong", "cross": {"models": names, "num_gpus": num_gpus}}},
    }
    write_yaml(root / "config" / "studies" / "benchmark.yaml", study)


def write_yaml(path: Path, data: Any) -> None:
    path.write_text(yaml.safe_dump(data, sort_keys=False))


def snakemake(root: Path, *arguments: str) -> str:
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--profile",
        "profiles/local",
        *arguments,
        "--config",
        "studies=['benchmark']",
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout + done.stderr


def planned_records(root: Path) -> list[Path]:
    return [Path(line) for line in ask_planner(root, "record_path(Path('results'), 'local', p)")]


def tokens_of(root: Path) -> str:
    return f"results/tokens/{ask_planner(root, 'study.corpus.key')[0]}/train.json"


def ask_planner(root: Path, expression: str) -> list[str]:
    """The copy's own planner, in a process of its own: this one may have imported another's."""
    code = (
        "import sys; sys.path.insert(0, 'scripts')\n"
        "from pathlib import Path\n"
        "from planning.plan import record_path\n"
        "from planning.studies import load_study\n"
        "study = load_study('benchmark', 'local', Path.cwd())\n"
        f"for p in study.runnable(): print({expression})\n"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


if __name__ == "__main__":
    main()
