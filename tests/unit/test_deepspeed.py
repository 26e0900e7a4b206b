"""DeepSpeed's adaptor: what it refuses, what it tells DeepSpeed, and that every layout trains like one process of plain
torch.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import factories
from contracts.adaptor import Job
from framework_processes import STEPS, train_cells
from frameworks import deepspeed
from frameworks.torch.decoder import GPT, Block
from models.gpt import Gpt
from workloads.training.training_cell import TrainingCell

TOLERANCE = 1e-4
TIMEOUT_S = 900  # about 100 s on two idle cores: importing DeepSpeed takes every rank 10 s
# Its gradients' norm is above 1, so that clipping would show. The large matrices have more than 1e5 elements: smaller
# parameters ZeRO 3 leaves whole on every rank.
MODEL = Gpt("small", num_layers=2, hidden_size=256, num_heads=4, seq_length=32, vocab_size=512)
TIED = replace(MODEL, tie_embeddings=True)
TINY = replace(MODEL, hidden_size=32)


def make_cell(data: int = 1, pipeline: int = 1, micro_batch: int = 2, **settings: Any) -> TrainingCell:
    return factories.trained_cell(
        data, 1, pipeline, micro_batch, **{"framework": "deepspeed", "model": MODEL, **settings}
    )


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (make_cell(2, zero_stage=3), None),
        (make_cell(2, 2, zero_stage=1), None),
        (make_cell(pipeline=2, micro_batch=8), None),  # fewer micro-batches than stages
        (make_cell(2, device="cuda", precision="fp16", zero_stage=2, offload="optimizer"), None),
        (make_cell(2, model=TIED, zero_stage=3), None),
        (make_cell(pipeline=2, zero_stage=2), "refuses ZeRO 2 and 3, and the layout has zero_stage 2"),
        (make_cell(pipeline=2, zero_stage=3), "refuses ZeRO 2 and 3"),
        (make_cell(pipeline=2, model=TIED), "tied embeddings"),
        (make_cell(device="cuda", offload="optimizer"), "zero_stage 1, 2 or 3 only"),
        (make_cell(zero_stage=1, offload="optimizer"), "on a CPU they are there already"),
        (make_cell(precision="fp16"), "fp16 needs a GPU"),
        (make_cell(device="cuda", precision="fp16"), "off gradients that never had it"),
        (make_cell(2, 2, device="cuda", precision="fp16"), "use zero_stage 1, or bf16"),
        (make_cell(checkpointing="some"), "checkpointing some"),
    ],
)
def test_what_cannot_run_is_said_beforehand(cell: TrainingCell, reason: str | None) -> None:
    said = deepspeed.unsupported_reason(cell)
    assert said is None if reason is None else reason in said


def test_deepspeed_is_told_the_cell_and_the_common_optimizer() -> None:
    config = deepspeed.engine_config(make_cell(2, micro_batch=1, zero_stage=2), fused=False, loss_scale=1.0)
    assert config["optimizer"] == {
        "type": "AdamW",
        "params": {
            "lr": 0.01,
            "betas": [0.9, 0.95],
            "eps": 1e-3,
            "weight_decay": 0.0,
            "torch_adam": True,
            "fused": True,
        },
    }
    assert config["gradient_clipping"] == 0
    assert config["zero_optimization"] == {"stage": 2}
    sizes = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    assert [config[key] for key in sizes] == [8, 1, 4]
    assert not {"bf16", "fp16"} & set(config)


def test_deepspeed_is_told_its_own_adam_and_half_precision_on_a_gpu() -> None:
    cell = make_cell(device="cuda", precision="fp16", zero_stage=1, offload="optimizer")
    config = deepspeed.engine_config(cell, fused=True, loss_scale=65536.0)
    assert "torch_adam" not in config["optimizer"]["params"]
    assert config["fp16"] == {"enabled": True, "loss_scale": 65536.0}
    assert config["zero_optimization"] == {"stage": 1, "offload_optimizer": {"device": "cpu"}}
    cell = make_cell(device="cuda", precision="bf16")
    assert deepspeed.engine_config(cell, fused=True, loss_scale=1.0)["bf16"] == {"enabled": True}


def test_every_parameter_of_the_pipeline_s_layers_has_its_name() -> None:
    layers = [GPT(MODEL, blocks=range(0)), *(Block(256, 4, "none") for _ in range(2)), GPT(MODEL, blocks=range(2, 2))]
    pipeline = torch.nn.ModuleDict({str(index): layer for index, layer in enumerate(layers)})
    shapes = {deepspeed.parameter_name(name, 2): tuple(p.shape) for name, p in pipeline.named_parameters()}
    assert shapes == MODEL.parameter_shapes()


class FakeEngine:
    """One that trains nothing, and may skip its steps."""

    def __init__(self, skipped_steps: int = 0) -> None:
        self.skipped_steps = skipped_steps
        self.calls: list[str] = []

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.float().mean()

    def backward(self, loss: torch.Tensor) -> None:
        self.calls.append("backward")

    def step(self) -> None:
        self.calls.append("step")


def test_a_step_accumulates_and_returns_the_mean_loss() -> None:
    engine = FakeEngine()
    step = deepspeed.ZeroStep(engine, make_cell(), lambda logits, targets: logits)
    assert step(torch.arange(8), torch.arange(8)).item() == 3.5
    assert engine.calls == ["backward", "step"] * 4


def test_a_skipped_step_is_an_error() -> None:
    step = deepspeed.ZeroStep(FakeEngine(skipped_steps=1), make_cell(), lambda logits, targets: logits)
    with pytest.raises(RuntimeError, match="skipped an optimizer step: a gradient overflowed"):
        step(torch.arange(8), torch.arange(8))


def test_an_empty_step_is_forgotten() -> None:
    """By torch's AdamW (a tensor counts) and by DeepSpeed's (a number does)."""
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizers = [torch.optim.AdamW([parameter], lr=0.1, weight_decay=0) for parameter in parameters]
    parameters[0].grad = torch.zeros(2)
    optimizers[0].step()
    deepspeed.forget_empty_step(optimizers[0])
    for parameter, optimizer in zip(parameters, optimizers, strict=True):
        parameter.grad = torch.tensor([1.0, 2.0])
        optimizer.step()
    assert torch.equal(*parameters)
    counting = SimpleNamespace(state={0: {"step": 1}})
    deepspeed.forget_empty_step(counting)
    assert counting.state == {0: {"step": 0}}


def test_its_own_speed_is_in_sequences_of_all_ranks() -> None:
    assert deepspeed.zero_speed(SimpleNamespace(tput_timer=SimpleNamespace(avg_samples_per_sec=lambda: 3.0))) == {
        "samples_per_s": 3.0
    }
    timer = SimpleNamespace(mean=lambda: 500.0)  # milliseconds
    engine = SimpleNamespace(train_batch_size=lambda: 8, timers=lambda name: timer)
    assert deepspeed.pipeline_speed(engine) == {"samples_per_s": 16.0}


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is not None, reason="DeepSpeed is installed")
def test_the_adaptor_is_not_taken_for_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    with pytest.raises(ModuleNotFoundError, match="No module named 'deepspeed'"):
        deepspeed.open_deepspeed(torch.device("cpu"))
    with pytest.raises(ModuleNotFoundError, match="No module named 'deepspeed'"):
        deepspeed.zero_engine(make_cell(), {}, torch.device("cpu"), Job(make_cell(), 0, 1, 0).rank)


# Keys begin with the number of processes.
REFERENCES = {(MODEL, "fp32"): "1 torch", (TIED, "fp32"): "1 torch tied", (TINY, "bf16"): "1 torch bf16"}
CELLS = {
    # First: ZeRO 3 numbers modules as long as a process lives, and its ranks must agree on the numbers.
    "4 ZeRO 3": make_cell(4, zero_stage=3),
    "4 pipeline x data": make_cell(2, 2),
    "4 pipeline x data, ZeRO 1": make_cell(2, 2, zero_stage=1),
    "1 torch": make_cell(framework="torch_plain", micro_batch=8),
    "1 torch tied": make_cell(framework="torch_plain", micro_batch=8, model=TIED),
    "1 torch bf16": make_cell(framework="torch_plain", micro_batch=8, precision="bf16", model=TINY),
    "1": make_cell(),
    "1 ZeRO 2": make_cell(zero_stage=2),
    "2 data": make_cell(2),
    "2 ZeRO 1": make_cell(2, zero_stage=1),
    "2 ZeRO 2, full": make_cell(2, zero_stage=2, checkpointing="full"),
    "2 ZeRO 3": make_cell(2, zero_stage=3),
    "2 ZeRO 3, full, tied": make_cell(2, zero_stage=3, checkpointing="full", model=TIED),
    "2 ZeRO 3, selective": make_cell(2, zero_stage=3, checkpointing="selective"),
    "2 pipeline": make_cell(pipeline=2),
    "2 pipeline, full": make_cell(pipeline=2, checkpointing="full"),
    "2 pipeline, selective": make_cell(pipeline=2, checkpointing="selective"),
    "2 data, after ZeRO 3": make_cell(2, checkpointing="selective"),
    "2 bf16": make_cell(2, precision="bf16", model=TINY),
    "2 bf16, ZeRO 3": make_cell(2, precision="bf16", zero_stage=3, model=TINY),
    "2 bf16, pipeline": make_cell(pipeline=2, precision="bf16", model=TINY),
}


@pytest.fixture(scope="module")
def losses(axonn_paper_python: str) -> dict[str, list[float]]:
    """Of every layout's first batches."""
    trained = train_cells(list(CELLS.values()), timeout_s=TIMEOUT_S - 20, python=axonn_paper_python)
    return dict(zip(CELLS, trained, strict=True))


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", [name for name in CELLS if name not in REFERENCES.values()])
def test_every_layout_trains_like_one_process_of_torch(name: str, losses: dict[str, list[float]]) -> None:
    cell = CELLS[name]
    ours, reference = losses[name], losses[REFERENCES[cell.model, cell.precision]]
    assert len(ours) == len(reference) == STEPS
    difference = max(abs(a - b) / abs(b) for a, b in zip(ours, reference, strict=True))
    # bf16 keeps 8 bits, and DeepSpeed's weights are in it where torch's autocast has float32 ones.
    assert difference <= (TOLERANCE if cell.precision == "fp32" else 5e-4)
    print(f"{name}: {difference:.1e}")
