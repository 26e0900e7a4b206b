"""What a training process finds out before it trains: other versions than the cell's, packages that are not there."""

from __future__ import annotations

import errno
import importlib.metadata
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from contracts.adaptor import Framework, NotAvailable
from workloads import memory
from workloads.packages import check_places, check_versions
from workloads.rank import failure_status
from workloads.training.timed_batches import telling_progress

NUMPY = importlib.metadata.version("numpy")
FRAMEWORK = Framework(1, "nothing", frozenset(), packages=("numpy", "no-such-package"))


def test_another_version_than_the_cells_is_told_with_what_to_do() -> None:
    with pytest.raises(NotAvailable, match=rf"numpy {NUMPY} is installed and envs/nothing.txt says numpy==1.0"):
        check_versions(FRAMEWORK, {"name": "nothing", "requirements": ["numpy==1.0"]})


@pytest.mark.parametrize("requirement", [f"numpy=={NUMPY}", "numpy", "numpy>=1", "no-such-package==3", "other==1"])
def test_versions_that_are_right_or_open(requirement: str) -> None:
    check_versions(FRAMEWORK, {"name": "nothing", "requirements": [requirement]})


def test_how_a_package_was_built_is_no_other_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.13.0+cu126")
    check_versions(Framework(1, "torch", frozenset(), packages=("torch",)), {"requirements": ["torch==2.13.0"]})


@pytest.mark.parametrize(
    ("package", "module"), [("deepspeed", "deepspeed"), ("megatron-core", "megatron"), ("nvidia-ml-py", "nvidia_ml_py")]
)
def test_a_package_that_is_not_installed(package: str, module: str) -> None:
    framework = Framework(1, "nothing", frozenset(), packages=(package,))
    assert failure_status(ModuleNotFoundError(f"No module named {module!r}", name=module), framework) == "not_available"
    assert failure_status(ModuleNotFoundError("No module named 'other'", name="other"), framework) == "error"


@pytest.mark.parametrize("torch_is_loaded", [True, False])
def test_out_of_memory_before_torch_is_there(torch_is_loaded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import of torch that fails leaves no torch behind, and other frameworks have none."""
    if torch_is_loaded:
        monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    else:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(memory, "memory_was_lacking_for_a_thread", lambda: True)
    for error in (
        MemoryError(),
        RuntimeError("can't start new thread"),
        RuntimeError("std::bad_alloc"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libx.so: failed to map segment from shared object"),
    ):
        assert failure_status(error, FRAMEWORK) == "oom"
    for other in (OSError(errno.EAGAIN, "Resource temporarily unavailable"), RuntimeError("shapes differ")):
        assert failure_status(other, FRAMEWORK) == "error"


def test_another_package_on_pythonpath_is_told_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy-1.5.dist-info").mkdir()
    (tmp_path / "numpy-1.5.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.5\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        NotAvailable, match=rf"numpy 1\.5 lies in {tmp_path}, which PYTHONPATH puts first .*unset PYTHON"
    ):
        check_versions(FRAMEWORK, {"name": "nothing", "requirements": [f"numpy=={NUMPY}"]})


def test_a_copy_on_pythonpath_without_a_version_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_places(FRAMEWORK)
    (tmp_path / "no_such_package.py").touch()
    (tmp_path / "packaging").mkdir()
    (tmp_path / "packaging" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "packaging"]:
        monkeypatch.delitem(sys.modules, name)
    framework = Framework(1, "nothing", frozenset(), packages=("packaging", "no-such-package"))
    with pytest.raises(
        NotAvailable, match=rf"packaging would be loaded from {tmp_path}.*since PYTHONPATH names {tmp_path}"
    ):
        check_places(framework)


def test_where_a_wrong_version_lies_is_told() -> None:
    with pytest.raises(NotAvailable, match=r"says numpy==1\.0 \(it lies in /.*site-packages\)"):
        check_versions(FRAMEWORK, {"name": "nothing", "requirements": ["numpy==1.0"]})


def test_the_first_process_says_into_the_log_which_batch_begins(capfd: pytest.CaptureFixture[str]) -> None:
    read = telling_progress(lambda index: np.array([index]), long_s=0.0)
    assert [int(read(index)[0]) for index in range(3)] == [0, 1, 2]
    assert capfd.readouterr().out.splitlines() == ["batch 2 of 11", "batch 3 of 11"]


def test_short_batches_are_not_told(capfd: pytest.CaptureFixture[str]) -> None:
    read = telling_progress(lambda index: np.array([index]), long_s=60.0)
    assert [int(read(index)[0]) for index in range(3)] == [0, 1, 2]
    assert capfd.readouterr().out == ""
