"""What a full disk or a killed installation leaves: modules and packages that are not whole; and pip's words."""

from __future__ import annotations

import importlib.machinery
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from checkout_double import CONFLICT, NOT_FOUND, RETRY, ROOT, UNREACHABLE, Checkout
from installation.bytecode import remove_damaged
from installation.pip_words import pip_failure_words
from installation.wholeness import damaged_packages


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a folder with spaces")


# --- bytecode


def test_whatever_is_left_of_compiled_modules_can_be_imported(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("def f(x):\n    return [x, 'text', 1.5]\n")
    compiled = Path(py_compile.compile(str(source), doraise=True))
    whole = compiled.read_bytes()
    failed = 0
    for length in range(len(whole)):
        compiled.write_bytes(whole[:length])
        try:
            importlib.machinery.SourceFileLoader("module", str(source)).get_code("module")
        except EOFError:
            failed += 1
        compiled.write_bytes(whole[:length])
        remove_damaged([tmp_path])
        importlib.machinery.SourceFileLoader("module", str(source)).get_code("module")
    assert failed > len(whole) / 2  # without it they could not
    compiled.write_bytes(whole)
    assert remove_damaged([tmp_path]) == [] and compiled.read_bytes() == whole
    compiled.write_bytes(whole[:16] + bytes(len(whole) - 16))  # a power cut leaves zeros
    assert remove_damaged([tmp_path]) == [compiled] and not compiled.exists()
    compiled.write_bytes(whole[:40])
    foreign = compiled.with_name("module.cpython-27.pyc")
    foreign.write_bytes(whole[:40])
    assert remove_damaged([tmp_path]) == [compiled] and foreign.exists()  # another Python's is that one's to judge


def test_programs_that_people_call_recover_from_cut_bytecode(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "scripts/status.py", "--help"], cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        compiled = [path for path in tmp_path.rglob("*.pyc") if not path.name.startswith("whole_bytecode.")]
        assert len(compiled) > 10
        for path in compiled:
            path.write_bytes(path.read_bytes()[:100])
    for name in ("write_outputs.py", "compare_systems.py"):
        text = (ROOT / "scripts" / name).read_text()
        assert text.index("import whole_bytecode") < text.index("from contracts")


def test_run_removes_cut_bytecode(checkout: Checkout) -> None:
    (checkout.root / "scripts/module.py").write_text("x = 1\n")
    compiled = Path(py_compile.compile(str(checkout.root / "scripts/module.py"), doraise=True))
    compiled.write_bytes(compiled.read_bytes()[:40])
    done = checkout.run("-n")
    assert done.returncode == 0 and "was cut short" in done.stderr
    assert not compiled.exists()


# --- packages that are not whole


def install(folder: Path, name: str) -> Path:
    """Lay down a package as pip does: a module, and a RECORD with its size."""
    (folder / f"{name}.py").write_text("x = 1\n")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    record = f"{name}.py,sha256=x,6\n__pycache__/{name}.cpython-311.pyc,,\n{info.name}/METADATA,sha256=x,1\n"
    (info / "RECORD").write_text(record + f"{info.name}/RECORD,,\n")
    return info


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: None, None),
        (lambda folder: (folder / "b.py").write_text("x"), "b: b.py has 1 bytes of 6"),
        (lambda folder: (folder / "b.py").unlink(), "b: b.py: No such file or directory"),
        (lambda folder: (folder / "b-1.0.dist-info/RECORD").unlink(), "b: its installation was not finished"),
    ],
)
def test_a_package_that_is_not_whole_is_found(
    tmp_path: Path, damage: Callable[[Path], object], message: str | None
) -> None:
    for name in ("a", "b"):
        install(tmp_path, name)
    damage(tmp_path)
    assert damaged_packages([str(tmp_path)]) == ([message] if message else [])


# --- pip's words


@pytest.mark.parametrize(
    ("output", "expected", "unexpected"),
    [
        (UNREACHABLE, "the package index could not be reached, so torch==2.13.0 could not be had", "has no"),
        (RETRY.format(0) + CONFLICT, "could not be reached, so torch==2.13.0 could not be had", "fit together"),
        # reached at the second attempt
        (RETRY.format(4) + NOT_FOUND.format("2.11.0, 2.12.0"), "has no torch==2.13.0 for Python", "be reached, so"),
        (NOT_FOUND.format("1.0, 2.10.0, 2.11.0, 2.12.0"), "(it has ..., 2.10.0, 2.11.0, 2.12.0)", "reached"),
        (NOT_FOUND.format("none"), "has no torch==2.13.0", "it has"),
        (UNREACHABLE.replace("NewConnectionError", "SSLError"), "PIP_CERT", "be reached"),
        (UNREACHABLE.replace("NewConnectionError", "ProxyError"), "the proxy", "be reached"),
        ("The repository is not a trusted or secure host and is being ignored.\n" + UNREACHABLE, "https", "x"),
        (CONFLICT, "no versions of what torch==2.13.0 needs that fit together", "disk"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", "disk", "index"),
        ("ERROR: Failed building wheel for mpi4py\n", "mpi4py had to be built", "index"),
        ("ERROR: [Errno 13] Permission denied: '/x'\n", "permissions", "index"),
        ("", "If it is the network: check", "None"),
    ],
)  # fmt: skip
def test_pips_failure_in_our_words(output: str, expected: str, unexpected: str) -> None:
    words = pip_failure_words(output, ["envs/torch.txt"])
    assert expected in words and words.startswith("envs/torch.txt could not be installed: ")
    assert unexpected == "x" or unexpected not in words
    assert "\n" not in words and "://" not in words
    assert words.endswith("what is installed already stays.")
