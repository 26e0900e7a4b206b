"""A folder with what ./run needs to begin, and a double of Python in it that only notes what it was called for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = """#!/usr/bin/env bash
case "$*" in
    "-m venv --clear .venv")
        echo made >>venvs
        rm -rf .venv damaged has-uv; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    "-I -c import pip") exit 0 ;;
    "-m pip config list") cat pip-config 2>/dev/null || true ;;
    "-m pip install"*" -r envs/uv.txt") if [ -e pip-fails ]; then exit 1; fi; touch has-uv ;;
    "-m pip install"*)
        echo "$*" >>pip-calls
        cat pip-says 2>/dev/null
        if [ -e pip-fails ]; then exit 1; fi ;;
    "-m uv --version") [ -e has-uv ] && echo "uv 0.0.1 (double)" ;;
    "-m uv cache dir") echo "$PWD/cache" ;;
    "-m uv pip compile"*) cat lock 2>/dev/null ;;
    "-m uv pip install"*"--dry-run"*) cat dry-run >&2 2>/dev/null || true ;;
    "-m uv pip install"*)
        echo "$*" >>uv-calls
        env >uv-variables
        cat uv-says 2>/dev/null
        if [ -e uv-fails ]; then exit 2; fi ;;
    "-I "*wholeness.py) if [ -e damaged ]; then cat damaged; exit 1; fi ;;
    *stale_lock.py) exit 1 ;;
    "-m snakemake"*) shift 2; echo "snakemake: $*" ;;
    *) exec REAL "$@" ;;
esac
"""

RETRY = (
    "WARNING: Retrying (Retry(total={}, connect=None, read=None, redirect=None, status=None)) after connection broken "
    "by 'NewConnectionError('<object>: Failed to establish a new connection: [Errno 111] refused')': /simple/torch/\n"
)
NOT_FOUND = (
    "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: {})\n"
    "ERROR: No matching distribution found for torch==2.13.0\n"
)
CONFLICT = "ERROR: Cannot install torch==2.13.0 because these package versions have conflicting dependencies.\n"
UNREACHABLE = "".join(RETRY.format(left) for left in range(4, -1, -1)) + NOT_FOUND.format("none")


class Checkout:
    """A folder with what ./run needs to begin, and a double of Python in `python`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.python = root.parent / "python double"
        write_program(self.python, DOUBLE.replace("REAL", sys.executable))
        (root / "envs").mkdir(parents=True)
        shutil.copy(ROOT / "run", root / "run")
        shutil.copy(ROOT / "envs/setup.sh", root / "envs")
        (root / "envs/torch.txt").write_text("torch==2.13.0\n")
        (root / "envs/workflow.txt").write_text("-r torch.txt\nsnakemake==9.27.1\n")
        (root / "envs/uv.txt").write_text("uv==0.0.1\n")
        for folder in ("plugins", "scripts/contracts", "scripts/installation", "scripts/workloads"):
            shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("install_packages.py", "whole_bytecode.py"):
            shutil.copy(ROOT / "scripts" / name, root / "scripts")

    def run(
        self, *arguments: str, python: str | None = "", installer: str = "", **options: object
    ) -> subprocess.CompletedProcess[str]:
        """Call ./run; python: the value of PYTHON ("": the double's path; None: not set, and the double is on PATH)."""
        variables = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHON", "PYTHONPATH") and not name.startswith("UV_")
        }
        variables["SCALING_EVAL_INSTALLER"] = installer
        if python is None:
            folder = self.root.parent / "bin"
            folder.mkdir(exist_ok=True)
            shutil.copy(self.python, folder / "python3")
            variables["PATH"] = f"{folder}{os.pathsep}{variables['PATH']}"
        else:
            variables["PYTHON"] = python or str(self.python)
        command = [str(self.root / "run"), *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload]

    def calls(self, name: str) -> int:
        path = self.root / name
        return len(path.read_text().splitlines()) if path.exists() else 0

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.root.rglob("*")) if path.is_file()}


def write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path
