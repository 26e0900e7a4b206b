"""The Megatron-LM adaptor: what it refuses, which weights its ranks hold, and that every layout trains like one process
of plain torch.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import factories
from contracts.adaptor import Job
from framework_processes import STEPS, train_cells
from frameworks import megatron_lm
from frameworks.torch.megatron_weights import parameter_source, tensor_shard
from models.gpt import Gpt
from workloads.rank import failure_status
from workloads.training.training_cell import TrainingCell

TOLERANCE = 1e-4
TIMEOUT_S = 900  # about 100 s on two idle cores: importing Megatron takes every rank 10 s
MODEL = Gpt("tiny", num_layers=2, hidden_size=32, num_heads=4, seq_length=32, vocab_size=512)
DEEP = replace(MODEL, num_layers=4)
TIED = replace(DEEP, tie_embeddings=True)


make_cell = partial(factories.trained_cell, framework="megatron_lm", model=MODEL)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (make_cell(2, 2, 1), None),
        (make_cell(device="cuda", precision="fp16"), None),
        (make_cell(pipeline=2, model=TIED), None),
        (make_cell(pipeline=4, model=DEEP, micro_batch=8), None),  # fewer micro-batches than stages
        (make_cell(distributed_optimizer=True), None),
        (make_cell(tensor=2, device="cuda", precision="bf16", sequence_parallel=True), None),
        (make_cell(pipeline=2, model=DEEP, virtual_stages=2), None),
        (make_cell(precision="fp16"), "fp16 needs a GPU"),
        (make_cell(precision="bf16"), "fp32: bf16 needs a GPU"),
        (make_cell(checkpointing="some"), "checkpointing some"),
        (make_cell(tensor=3, model=replace(MODEL, num_heads=3, hidden_size=33)), "vocabulary of 512 cannot be split"),
        (make_cell(device="cuda", sequence_parallel=True), "only one"),
        (make_cell(tensor=2, sequence_parallel=True), "needs Transformer Engine"),
        (
            make_cell(tensor=2, device="cuda", model=replace(MODEL, seq_length=33), sequence_parallel=True),
            "sequences of 33 tokens",
        ),
        (make_cell(virtual_stages=2), "need pipeline parallelism"),
        (make_cell(pipeline=2, virtual_stages=2), "2 layers are not divisible by 2 pipeline stages x 2 virtual"),
        (make_cell(pipeline=2, model=DEEP, virtual_stages=2, micro_batch=8), "there are 1 and 2"),
    ],
)
def test_what_cannot_run_is_said_beforehand(cell: TrainingCell, reason: str | None) -> None:
    said = megatron_lm.unsupported_reason(cell)
    assert said is None if reason is None else reason in said


def test_query_key_and_value_go_head_by_head() -> None:
    query, key, value = (np.arange(4)[:, None] + np.array([[start, start]]) for start in (0, 10, 20))
    shards = [tensor_shard([query, key, value], 0, num_heads=2, tensor_rank=r, tensor_size=2) for r in (0, 1)]
    assert shards[0].tolist() == [[row, row] for row in (0, 1, 10, 11, 20, 21)]
    assert shards[1].tolist() == [[row, row] for row in (2, 3, 12, 13, 22, 23)]
    biases = [tensor_shard([part[:, 0] for part in (query, key, value)], 0, 2, 0, 1)]
    assert biases[0].tolist() == [0, 1, 10, 11, 20, 21, 2, 3, 12, 13, 22, 23]


def test_a_parameter_is_split_along_its_axis_or_not_at_all() -> None:
    whole = np.arange(12).reshape(2, 6)
    assert tensor_shard([whole], 1, 4, tensor_rank=2, tensor_size=3).tolist() == [[4, 5], [10, 11]]
    assert tensor_shard([whole], 0, 4, tensor_rank=1, tensor_size=2).tolist() == [[6, 7, 8, 9, 10, 11]]
    assert tensor_shard([whole], None, 4, tensor_rank=1, tensor_size=2) is whole


@pytest.mark.parametrize("model", [DEEP, TIED])
@pytest.mark.parametrize(
    "norms", ["input_layernorm. pre_mlp_layernorm.", "self_attention.linear_qkv.layer_norm_ mlp.linear_fc1.layer_norm_"]
)
def test_every_weight_of_ours_is_in_a_parameter_of_megatron(model: Gpt, norms: str) -> None:
    """Of Megatron's own layers and of Transformer Engine's; a chunk holds both ends and layers 2 and 3."""
    in_layer = [norm + kind for norm in norms.split() for kind in ("weight", "bias")]
    in_layer += [
        f"{module}.{kind}"
        for module in ("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2")
        for kind in ("weight", "bias")
    ]
    names = [f"decoder.layers.{layer}.{name}" for layer in (0, 1) for name in in_layer]
    names += ["embedding.word_embeddings.weight", "embedding.position_embeddings.weight", "output_layer.weight"]
    names += ["decoder.final_layernorm.weight", "decoder.final_layernorm.bias"]
    held = [ours for name in names for ours in parameter_source(name, 2, model.tie_embeddings)[0]]
    earlier = ("blocks.0.", "blocks.1.")
    assert set(held) == {name for name in model.parameter_shapes() if not name.startswith(earlier)}
    assert len(held) == len(set(held)) + model.tie_embeddings


def test_an_unknown_parameter_is_an_error() -> None:
    with pytest.raises(KeyError):
        parameter_source("decoder.layers.0.mlp.router.weight", 0, False)


def test_cuda_is_told_before_it_starts_and_the_user_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_DEVICE_MAX_CONNECTIONS", "NVIDIA_TF32_OVERRIDE"):
        monkeypatch.setenv(name, "")  # so that it is as before again afterwards
        monkeypatch.delenv(name)
    assert megatron_lm._set_cuda_variables(make_cell(2, device="cuda", precision="bf16")) == {}
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8")
    told = megatron_lm._set_cuda_variables(make_cell(tensor=2, device="cuda"))
    assert told == {"CUDA_DEVICE_MAX_CONNECTIONS": "8", "NVIDIA_TF32_OVERRIDE": "0"}
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"


def test_nothing_is_fused_on_a_cpu() -> None:
    assert not any(megatron_lm.fusions(on_cuda=False).values())
    assert megatron_lm.fusions(on_cuda=True)["bias_activation_fusion"]


@pytest.mark.skipif(importlib.util.find_spec("megatron") is not None, reason="megatron-core is installed")
def test_a_missing_package_is_not_available() -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        megatron_lm.create_engine(Job(make_cell(), 0, 1, 0))
    assert failure_status(caught.value, megatron_lm.FRAMEWORK) == "not_available"


class FakeOptimizer:
    def __init__(self, updates: bool) -> None:
        self.updates = updates

    def zero_grad(self) -> None: ...

    def step(self) -> tuple[bool, None, None]:
        return self.updates, None, None


def fake_step(losses: list[torch.Tensor], updates: bool = True) -> Any:
    """What one step returns when the schedule comes back with these losses; it must be given whole micro-batches."""

    def schedule(**arguments: Any) -> list[torch.Tensor]:
        (micro_batches,) = arguments["data_iterator"]
        assert [tuple(inputs.shape) for inputs, _ in micro_batches] == [(2, 32)] * arguments["num_microbatches"]
        return losses

    chunk, positions, tokens = SimpleNamespace(zero_grad_buffer=list), torch.arange(32), torch.zeros(8, 32)
    step = megatron_lm.MegatronStep(make_cell(), [chunk], FakeOptimizer(updates), schedule, positions)
    return step(tokens, tokens)


def test_a_step_returns_the_mean_loss_on_the_last_stage_only() -> None:
    assert fake_step([torch.tensor(1.0), torch.tensor(2.0)]).item() == 1.5
    assert fake_step([]) is None


def test_a_skipped_step_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="skipped a step"):
        fake_step([torch.tensor(1.0)], updates=False)


# Keys begin with the number of processes.
REFERENCES = {MODEL: "1 torch", DEEP: "1 torch deep", TIED: "1 torch tied"}
CELLS = {
    "1 torch": make_cell(framework="torch_plain", micro_batch=8),
    "1 torch deep": make_cell(framework="torch_plain", micro_batch=8, model=DEEP),
    "1 torch tied": make_cell(framework="torch_plain", micro_batch=8, model=TIED),
    "1": make_cell(),
    "1 full, distributed optimizer": make_cell(checkpointing="full", distributed_optimizer=True),
    "1 tied": make_cell(model=TIED),
    "2 data": make_cell(2),
    "2 data, distributed optimizer": make_cell(2, distributed_optimizer=True),
    "2 tensor": make_cell(tensor=2),
    "2 tensor, full": make_cell(tensor=2, checkpointing="full"),
    "2 tensor, selective": make_cell(tensor=2, checkpointing="selective", model=TIED),
    "2 pipeline": make_cell(pipeline=2),
    "2 pipeline, one micro-batch": make_cell(pipeline=2, micro_batch=8),
    "2 pipeline, full": make_cell(pipeline=2, checkpointing="full"),
    "2 pipeline, tied": make_cell(pipeline=2, model=TIED),
    "2 interleaved": make_cell(pipeline=2, model=DEEP, virtual_stages=2),
    "2 interleaved, tied, selective": make_cell(pipeline=2, model=TIED, virtual_stages=2, checkpointing="selective"),
    "4 tensor x pipeline": make_cell(tensor=2, pipeline=2),
    "4 tensor x interleaved": make_cell(tensor=2, pipeline=2, model=DEEP, virtual_stages=2),
    "4 tensor x data": make_cell(2, 2),
    "4 data x pipeline, distributed optimizer": make_cell(2, 1, 2, 1, distributed_optimizer=True),
    "4 data x pipeline, distributed optimizer, tied": make_cell(2, 1, 2, model=TIED, distributed_optimizer=True),
    "4 data x interleaved, distributed optimizer": make_cell(
        2, 1, 2, 1, model=DEEP, virtual_stages=2, distributed_optimizer=True
    ),
    "4 pipeline, two micro-batches": make_cell(pipeline=4, model=DEEP, micro_batch=4),
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
    ours, reference = losses[name], losses[REFERENCES[CELLS[name].model]]
    assert len(ours) == len(reference) == STEPS
    difference = max(abs(a - b) / abs(b) for a, b in zip(ours, reference, strict=True))
    assert difference <= TOLERANCE
    print(f"{name}: {difference:.1e}")
