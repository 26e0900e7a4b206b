"""What a start costs: `./run` on a finished study against a bare Snakemake on an empty workflow, and imports.

    python benchmarks/starts.py [--turns 5]

Runs in a copy of the project in a temporary folder, whose .venv is made of links to the Python that runs this. Prints a
Markdown table. Needs envs/workflow.txt.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "workflow"))

from plausible import plausible  # noqa: E402

from project_copy import copy_project_files  # noqa: E402

SHAPE = {"num_layers": 2, "hidden_size": 8, "num_heads": 2, "seq_length": 8, "vocab_size": 50304, "source": "benchmark"}
STUDY = {
    "title": "benchmark",
    "paper": "axonn",
    "tables": ["strong_scaling"],
    "figures": ["strong_scaling"],
    "frameworks": {"torch_plain": None},
    "global_batch_size": 2,
    "comparisons": {"main": {"scaling": "strong", "cross": {"models": ["tiny"], "num_gpus": [1]}}},
}
EMPTY = "rule all:\n    output: 'done.txt'\n    shell: 'touch {output}'\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="how often each is measured")
    parser.add_argument("--only", choices=("runs", "imports"), help="one part of it")
    args = parser.parse_args()
    rows = []
    if args.only != "imports":
        with tempfile.TemporaryDirectory(prefix="scaling-eval-benchmark-") as folder:
            rows += run_rows(Path(folder), args.turns)
    if args.only != "runs":
        rows += import_rows(args.turns)
    print("| what | measured | goal |")
    print("|---|---|---|")
    for what, measured, goal in rows:
        print(f"| {what} | {measured} | {goal} |")


Row = tuple[str, str, str]


def run_rows(folder: Path, turns: int) -> list[Row]:
    empty, project = folder / "empty", finished_project(folder / "project")
    empty.mkdir()
    (empty / "Snakefile").write_text(EMPTY)
    python = str(project / ".venv" / "bin" / "python")
    bare = [python, "-m", "snakemake", "--cores", "1"]
    commands = {
        "bare": (bare, empty),
        "snakemake": ([*bare[:3], "--profile", "profiles/local", "benchmark"], project),
        "./run": (["./run", "benchmark"], project),
    }
    for command, where in commands.values():  # the first one makes the empty workflow's file and compiles modules
        seconds_of(command, where)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(turns):
        for name, (command, where) in commands.items():
            times[name].append(seconds_of(command, where))
    bare_s = plausible("a bare Snakemake", statistics.median(times["bare"]))
    rows = [("a bare Snakemake on an empty workflow with nothing to do", f"{bare_s:.2f} s", "")]
    for name, goal in (("snakemake", ""), ("./run", "2 s; 2")):
        ratios = [ours / theirs for ours, theirs in zip(times[name], times["bare"], strict=True)]
        ratio = plausible(f"{name} over a bare Snakemake", statistics.median(ratios), above=0.5)
        rows.append(
            (f"`{name}` on a finished study; over that", f"{statistics.median(times[name]):.2f} s; {ratio:.2f}", goal)
        )
    return rows


def import_rows(turns: int) -> list[Row]:
    """What each entry point imports before it looks at its arguments, beside the start of Python itself."""
    rows = []
    for path in sorted((ROOT / "scripts").glob("*.py")):
        taken = []
        for _ in range(turns):
            began = seconds_of([sys.executable, "-c", "pass"], ROOT)
            taken.append(seconds_of([sys.executable, "-c", f"import {path.stem}"], ROOT / "scripts") - began)
        # A start of Python varies by as much as the smallest of them takes.
        rows.append((f"imports of `{path.name}`", f"{1000 * max(0.0, statistics.median(taken)):.0f} ms", ""))
    return rows


def finished_project(root: Path) -> Path:
    """Return a copy of the project in which the study `benchmark` has run."""
    copy_project_files(ROOT, root)
    write_yaml(root / "config" / "models.yaml", {"tiny": SHAPE})
    for study in (root / "config" / "studies").glob("*.yaml"):
        study.unlink()
    write_yaml(root / "config" / "studies" / "benchmark.yaml", STUDY)
    write_yaml(root / "config" / "config.yaml", {"system": "local", "studies": ["benchmark"]})
    # ./run must find installed what envs/ asks for, and must not install into the Python that is measured with.
    (root / ".venv").mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name in ("bin", "lib", "lib64", "include", "pyvenv.cfg"):
            (root / ".venv" / path.name).symlink_to(path)
    files = "envs/torch.txt envs/workflow.txt plugins/pyproject.toml plugins/*/*.py"
    subprocess.run(f"cat {files} | cksum >.venv/installed-workflow", shell=True, cwd=root, check=True)
    seconds_of(["./run", "benchmark"], root)
    return root


def write_yaml(path: Path, data: object) -> None:
    path.write_text(yaml.safe_dump(data, sort_keys=False))


def seconds_of(command: Sequence[str], folder: Path) -> float:
    """Run a command that must succeed, and return how long it took."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    taken = time.monotonic() - began
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return taken


if __name__ == "__main__":
    main()
