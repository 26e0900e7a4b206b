"""Kinds of devices are a type: nobody compares a device with a text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from contracts.devices import Device
from factories import make_cell
from studies import cpu_system

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
TEXTS = {device.value for device in Device}


def compared_with_texts(source: str) -> list[int]:
    """Return the lines in which something that is called device is compared with the text of a kind.

    A `torch.device` is no Device: its `type` is compared with what torch calls it.
    """
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = [ast.unparse(side) for side in sides if not isinstance(side, ast.Constant)]
            texts = {side.value for side in sides if isinstance(side, ast.Constant)} & TEXTS
            if texts and any("device" in name and not name.endswith(".type") for name in names):
                lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("path", sorted(SCRIPTS.rglob("*.py")), ids=lambda path: path.relative_to(SCRIPTS).as_posix())
def test_nobody_compares_a_device_with_a_text(path: Path) -> None:
    assert compared_with_texts(path.read_text(encoding="utf-8")) == []


def test_such_a_comparison_is_noticed() -> None:
    assert compared_with_texts("a = 1\nif cell.device != 'cpu': pass") == [2]
    assert compared_with_texts("if device.type == 'cuda': pass") == []


def test_cells_and_systems_take_texts_and_hold_devices() -> None:
    assert make_cell("a", 1, device="cuda").device is Device.CUDA
    assert make_cell("a", 1, device="cuda").identity()["device"] == "cuda"
    assert cpu_system().device is Device.CPU
    with pytest.raises(ValueError, match="tpu"):
        make_cell("a", 1, device="tpu")


def test_what_is_counted() -> None:
    assert [Device.CPU.counted(n) for n in (1, 2, "8, 16")] == ["1 process", "2 processes", "8, 16 processes"]
    assert [Device.CUDA.counted(n) for n in (1, 2, "8, 16")] == ["1 GPU", "2 GPUs", "8, 16 GPUs"]


@pytest.mark.parametrize("device", Device)
def test_every_kind_answers_all_questions(device: Device) -> None:
    assert device.peak_is_measured == device.memory_is_the_hosts == (device is Device.CPU)
    assert device.collectives in ("gloo", "nccl")
