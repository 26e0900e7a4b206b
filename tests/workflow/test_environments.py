"""A framework with a Python of its own: made by the workflow when it is needed, and what the processes run under."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest

from installation.sharing import can_link
from project import ROOT, Project, wait_until

pytestmark = pytest.mark.slow

ADAPTOR = ROOT / "tests" / "data" / "nothing.py"


def write_framework(project: Project, requirements: str) -> None:
    shutil.copy(ADAPTOR, project.root / "scripts" / "frameworks" / "nothing.py")
    (project.root / "envs" / "nothing.txt").write_text(requirements)
    project.write_study(frameworks={"nothing": None, "torch_plain": None})


def test_a_framework_runs_under_a_venv_of_its_own(fresh_project: Project) -> None:
    write_framework(fresh_project, "numpy==2.4.6\n")
    run = fresh_project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert "envs/nothing.txt: installed in " in run.output
    noted = (fresh_project.root / "environments/venv-nothing.txt").read_text().strip()
    assert noted.startswith("environments/venv-nothing/")  # the project may be moved
    python = fresh_project.root / noted
    assert not list(python.parents[1].glob("lib/python*/site-packages/torch"))
    assert list(python.parents[1].glob("lib/python*/site-packages/numpy-2.4.6.dist-info"))
    path = fresh_project.record("nothing")
    record = json.loads(path.read_text())
    assert record["status"] == "ok"
    assert record["versions"]["numpy"] == "2.4.6"
    assert fresh_project.snakemake("tiny").nothing_done

    # Another version is another environment: the one that jobs may run in stays, and changing back finds it again.
    requirements = fresh_project.root / "envs/nothing.txt"
    requirements.write_text("numpy==2.4.5\n")
    run = fresh_project.snakemake("tiny")
    assert run.returncode == 0, run.output
    other = fresh_project.root / (fresh_project.root / "environments/venv-nothing.txt").read_text().strip()
    assert list(other.parents[1].glob("lib/python*/site-packages/numpy-2.4.5.dist-info"))
    assert run.jobs("train_cell") == 1
    assert f"to be deleted once no job runs in them: {python.parents[1]}\n" in run.output
    assert python.is_file()
    requirements.write_text("numpy==2.4.6\n")
    assert fresh_project.snakemake("tiny").jobs("train_cell") == 0
    path.unlink()
    run = fresh_project.snakemake("tiny")
    assert run.returncode == 0, run.output
    assert "installed already" in run.output and "installed in " not in run.output
    assert path.is_file()

    # By what files hold, without Snakemake's memory too: a touched one makes no environment for a missing cell.
    aside = path.rename(path.with_name("aside.json"))
    os.utime(requirements, (2e9, 2e9))
    shutil.rmtree(fresh_project.root / ".snakemake")
    planned = fresh_project.snakemake("--dry-run", "tiny")
    assert (planned.jobs("train_cell"), planned.jobs("make_venv")) == (1, 0), planned.output
    note = fresh_project.root / "environments/venv-nothing.txt"
    is_made = note.read_text()
    note.write_text(is_made.replace("/bin/", "-of-another-state/bin/"))
    planned = fresh_project.snakemake("--dry-run", "tiny")
    assert (planned.jobs("train_cell"), planned.jobs("make_venv")) == (1, 1), planned.output
    note.write_text(is_made)
    aside.rename(path)

    # Neither a touched requirements file nor a lost environment measures anything anew.
    requirements.touch()
    shutil.rmtree(fresh_project.root / "environments")
    run = fresh_project.snakemake("tiny")
    assert run.nothing_done, run.output


def test_an_environment_that_cannot_be_made_leaves_the_others(fresh_project: Project) -> None:
    write_framework(fresh_project, "no-such-distribution-of-ours==1\n")
    run = fresh_project.snakemake("tiny")
    assert run.returncode != 0
    assert "envs/nothing.txt could not be installed: " in run.output
    assert "no-such-distribution-of-ours==1" in run.output.split("could not be installed: ")[1]
    assert json.loads(fresh_project.record("torch_plain").read_text())["status"] == "ok"
    assert not (fresh_project.root / "environments/venv-nothing.txt").exists()
    (row,) = [row for row in fresh_project.measurements() if row["framework"] == "nothing"]
    assert row["kind"] == "environment_failed"
    assert (
        "the environment nothing of nothing could not be made: envs/nothing.txt could not be installed: "
        in row["reason"]
    )
    table = fresh_project.table("strong_scaling")
    assert "| nothing |" in table and "| PyTorch |" in table


def test_environments_with_the_same_torch_share_it_on_disk(axonn_paper_python: str, horovod_python: str) -> None:
    """Beside the first, the workflow's own, each of the others costs less than 500 MB."""
    folders = [Path(sys.prefix), Path(axonn_paper_python).parents[1], Path(horovod_python).parents[1]]
    for folder in folders:
        (torch,) = folder.glob("lib/python3*/site-packages/torch-*.dist-info/INSTALLER")
        if (by := torch.read_text().strip()) != "uv":
            pytest.skip(f"torch was installed in {folder} by {by}, which shares nothing")
        if not can_link(folders[0], folder):
            pytest.skip("this file system has no hard links, or the environments lie on several")
    seen: set[tuple[int, int]] = set()
    added_bytes = [sum(file.st_blocks * 512 for file in new_files(folder, seen)) for folder in folders]
    assert added_bytes[0] > 1000 * 10**6
    assert max(added_bytes[1:]) < 500 * 10**6, added_bytes


def new_files(folder: Path, seen: set[tuple[int, int]]) -> Iterator[os.stat_result]:
    """Yield what is below a folder and is no other name of what was yielded before, as du counts."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            status = (Path(parent) / name).lstat()
            if (key := (status.st_dev, status.st_ino)) not in seen:
                seen.add(key)
                yield status


def write_recipe(project: Project, recipe: str) -> list[str]:
    """An environment of nothing but what `recipe` does; returns the arguments that make it."""
    (project.root / "envs/empty.txt").write_text("# nothing\n")
    (project.root / "envs/empty.sh").write_text(recipe)
    paths = {"requirements": "envs/empty.txt", "folder": "environments/venv-empty"}
    paths |= {"output": "environments/venv-empty.txt"}
    return [word for name, path in paths.items() for word in (f"--{name}", path)]


def test_a_recipe_is_run_in_the_new_environment(fresh_project: Project) -> None:
    recipe = "echo building; python -c 'import sys; print(sys.prefix)' >prefix.txt\n"
    made = fresh_project.script("make_venv.py", *write_recipe(fresh_project, recipe))
    assert made.returncode == 0, made.output
    assert "building" in made.output
    folder = fresh_project.root / "environments/venv-empty"
    assert (fresh_project.root / "prefix.txt").read_text().strip() == str(folder)
    noted = folder.with_suffix(".txt").read_text().strip()
    assert noted == "environments/venv-empty/bin/python"
    moved = fresh_project.root.rename(fresh_project.root.with_name("moved"))
    subprocess.run([moved / noted, "-c", "import pip"], check=True)


def test_a_recipe_that_fails_leaves_no_interpreter(fresh_project: Project) -> None:
    arguments = write_recipe(fresh_project, "echo no compiler; exit 3\n")
    note = fresh_project.root / "environments/venv-empty.txt"
    note.parent.mkdir()
    note.write_text("of before\n")
    made = fresh_project.script("make_venv.py", *arguments)
    assert made.returncode == 1
    assert made.output.splitlines()[-2:] == [
        "no compiler",
        "envs/empty.txt: could not be installed (empty.sh ended with 3)",
    ]
    assert not note.exists()


def test_a_recipe_dies_with_its_parent_and_what_it_started_keeps_the_lock(fresh_project: Project) -> None:
    """So that a successor does not make the folder anew while something still writes into it."""
    arguments = write_recipe(fresh_project, "sleep 300 & echo $! >child; echo $$ >recipe; wait\n")
    making = subprocess.Popen([sys.executable, "scripts/make_venv.py", *arguments], cwd=fresh_project.root)
    recipe = fresh_project.root / "recipe"
    wait_until(lambda: recipe.exists() and recipe.read_text().endswith("\n"), "the recipe to run", 120)
    child = psutil.Process(int((fresh_project.root / "child").read_text()))
    making.send_signal(signal.SIGKILL)
    making.wait(10)
    wait_until(lambda: not psutil.pid_exists(int(recipe.read_text())), "the recipe to end")
    with (fresh_project.root / "environments/venv-empty.lock").open("a") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        child.kill()
        wait_until(lambda: locks(lock), "the lock to be free")


def locks(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
