"""The cluster's benchmark at its smallest size."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from cluster import make_cluster
from project import ROOT
from sandbox import Sandbox


def benchmark() -> ModuleType:
    """Return benchmarks/slurm.py as a module; its name is that of a folder here."""
    spec = importlib.util.spec_from_file_location("benchmark_of_slurm", ROOT / "benchmarks" / "slurm.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_of_two_hundred_cells_none_is_lost_or_run_twice(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark itself looks, and ends with an error otherwise."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark().measure(make_cluster(tmp_path / "project", sandbox), cells=200, bare=False)


@pytest.mark.timeout(400)
def test_two_cells_are_timed(
    sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark().measure(make_cluster(tmp_path / "project", sandbox), cells=2)
    printed = capsys.readouterr().out
    seconds = re.search(r"beyond its processes.*\| (\d+\.\d) s; (\d+\.\d) s \|", printed)
    assert seconds, printed
    assert 0 < float(seconds[1]) <= float(seconds[2])
