"""The script of a Slurm job, run by a real shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from launcher.slurm.job_script import job_script

PYTHON_FOLDER = str(Path(sys.executable).parent)
SHOW = f"exec {sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def test_a_step_takes_no_option_from_what_slurm_told_the_job(tmp_path: Path) -> None:
    told = {
        "SLURM_JOB_ID": "42",
        "SLURM_CONF": "/elsewhere/slurm.conf",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_MEM_PER_NODE": "820",
        "SRUN_CPUS_PER_TASK": "1",
        "SBATCH_PARTITION": "gpu",
        "SLURMD_NODENAME": "n1",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    done = run(job_script(SHOW, PYTHON_FOLDER, [], 0), tmp_path, **told)
    seen = json.loads(done.stdout)
    kept = {name: seen[name] for name in told if name in seen}
    assert kept == {
        name: told[name] for name in ("SLURM_JOB_ID", "SLURM_CONF", "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES")
    }
    assert seen["PATH"].split(os.pathsep)[0] == PYTHON_FOLDER


@pytest.mark.parametrize("word", ["a b", "$HOME", "`x`", "it's", '"', "\\", "a\nb", "*"])
def test_the_command_is_run_as_it_stands(tmp_path: Path, word: str) -> None:
    (tmp_path / word).touch()
    command = f"python -c 'import sys; print(ascii(sys.argv[1]))' {quoted(word)} 2> >(cat >&2)"
    done = run(job_script(command, PYTHON_FOLDER, [word], 0), tmp_path)
    assert done.stdout == f"{word!a}\n", done.stderr


def quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


@pytest.mark.parametrize(("command", "status"), [("exit 3", 3), ("false | true", 1), ("echo $unset_variable", 1)])
def test_its_failure_is_the_jobs(tmp_path: Path, command: str, status: int) -> None:
    assert run(job_script(command, PYTHON_FOLDER, [], 0), tmp_path).returncode == status


def test_a_file_that_comes_late_is_waited_for_and_no_longer_than_told(tmp_path: Path) -> None:
    late = tmp_path / "late file"
    timer = threading.Timer(1.5, late.touch)
    timer.start()
    done = run(job_script("ls", PYTHON_FOLDER, ["late file"], 30), tmp_path)
    timer.join()
    assert done.stdout == "late file\n"
    assert run(job_script("echo on", PYTHON_FOLDER, ["gone"], 1), tmp_path).stdout == "on\n"
