"""Horovod's adaptor: where it puts its processes, what it asks for when it is not built, and that it trains like one
process of plain torch.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import factories
from contracts.adaptor import Job, NotAvailable
from contracts.devices import Device
from framework_processes import STEPS, train_cells
from frameworks import horovod
from models.gpt import Gpt
from workloads.training.training_cell import TrainingCell

TOLERANCE = 1e-4
MODEL = Gpt("tiny", num_layers=2, hidden_size=32, num_heads=4, seq_length=32, vocab_size=512)


def make_cell(data: int = 1, micro_batch: int = 2, *, framework: str = "horovod", **changes: Any) -> TrainingCell:
    return factories.trained_cell(data, micro_batch=micro_batch, framework=framework, model=MODEL, **changes)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (make_cell(4), None),
        (make_cell(precision="bf16"), None),
        (make_cell(precision="fp16", device="cuda"), None),
        (make_cell(precision="fp16"), "fp16 needs a GPU"),
    ],
)
def test_what_cannot_run_is_said_beforehand(cell: TrainingCell, reason: str | None) -> None:
    said = horovod.unsupported_reason(cell)
    assert said is None if reason is None else reason in said


@pytest.mark.parametrize(
    ("places", "nodes"),
    [
        ([("a", 0)], [("a-0", 1)]),
        ([("a", 0), ("a", 1), ("b", 0), ("b", 1)], [("a-0", 2), ("b-2", 2)]),
        ([("a", 0), ("a", 1), ("b", 0)], [("a-0", 2), ("b-2", 1)]),
        ([("a", 0), ("a", 1), ("a", 0), ("a", 1)], [("a-0", 2), ("a-2", 2)]),  # one machine in place of two
    ],
)
def test_ranks_are_put_together_by_node(places: list[tuple[str, int]], nodes: list[tuple[str, int]]) -> None:
    assert horovod.nodes(places) == nodes


def test_a_process_is_told_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = SimpleNamespace(hostname="b-2", rank=3, size=4, local_rank=1, local_size=2, cross_rank=1, cross_size=2)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    told = horovod.variables(slot, "node0", 4711, 600)
    assert {name.removeprefix("HOROVOD_"): value for name, value in told.items()} == {
        "HOSTNAME": "b-2",
        "RANK": "3",
        "SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_SIZE": "2",
        "CROSS_RANK": "1",
        "CROSS_SIZE": "2",
        "GLOO_RENDEZVOUS_ADDR": "node0",
        "GLOO_RENDEZVOUS_PORT": "4711",
        "GLOO_TIMEOUT_SECONDS": "600",
        "CONTROLLER": "gloo",
        "CPU_OPERATIONS": "gloo",
    }
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0,eth0")
    assert horovod.variables(slot, "node0", 4711, 600)["HOROVOD_GLOO_IFACE"] == "ib0"


@pytest.mark.skipif(importlib.util.find_spec("horovod") is not None, reason="Horovod is installed")
def test_without_the_package_it_is_not_available() -> None:
    with pytest.raises(NotAvailable, match=r"Horovod is not installed: build it with envs/horovod\.sh"):
        horovod.create_engine(Job(make_cell(), 0, 1, 0))


@pytest.mark.parametrize(
    ("contents", "device", "message"),
    [
        ({}, Device.CPU, r"without its extension for torch: build it with envs/horovod\.sh"),
        ({"init": None, "nccl_built": lambda: 0}, Device.CUDA, r"without NCCL: build it with envs/horovod\.sh"),
    ],
)
def test_a_package_built_otherwise_is_not_available(
    contents: dict[str, Any], device: Device, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, module = ModuleType("horovod"), ModuleType("horovod.torch")
    package.torch = module  # type: ignore[attr-defined]
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, "horovod", package)
    monkeypatch.setitem(sys.modules, "horovod.torch", module)
    with pytest.raises(NotAvailable, match=message):
        horovod.import_horovod(device)


# Keys begin with the number of processes.
CELLS = {
    "1 torch": make_cell(framework="torch_plain", micro_batch=8),
    "1": make_cell(),
    "2": make_cell(2),  # two micro-batches a rank
    "2 full": make_cell(2, micro_batch=4, checkpointing="full"),
    "4": make_cell(4, micro_batch=1),
}


@pytest.fixture(scope="module")
def losses(horovod_python: str) -> dict[str, list[float]]:
    """Of every number of processes."""
    return dict(zip(CELLS, train_cells(list(CELLS.values()), 600, horovod_python), strict=True))


@pytest.mark.slow
@pytest.mark.timeout(3600)  # the first test that needs Horovod builds it
@pytest.mark.parametrize("name", [name for name in CELLS if name != "1 torch"])
def test_it_trains_like_one_process_of_torch(name: str, losses: dict[str, list[float]]) -> None:
    ours, reference = losses[name], losses["1 torch"]
    assert len(ours) == len(reference) == STEPS
    difference = max(abs(a - b) / abs(b) for a, b in zip(ours, reference, strict=True))
    assert difference <= TOLERANCE
    print(f"{name}: {difference:.1e}")
