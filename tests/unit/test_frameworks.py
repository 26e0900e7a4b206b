"""The torch adaptors: every layout trains like one process without a wrapper, or says beforehand that it cannot."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

import factories
from contracts.adaptor import Job, NotAvailable
from contracts.cell import Layout
from framework_processes import SCRIPTS, STEPS, train_cells
from frameworks import torch_ddp, torch_fsdp, torch_pipeline, torch_plain, torch_tensor
from frameworks.torch import torch_model
from frameworks.torch.decoder import GPT
from frameworks.torch.torch_engine import MicroBatches
from frameworks.torch.torch_model import LOSS_SCALE, build_on_meta, make_optimizer, materialize
from frameworks.torch.torch_setup import device_name
from models.gpt import Gpt, stage_blocks
from workloads import memory
from workloads.training.training_cell import TrainingCell

pytestmark = pytest.mark.usefixtures("one_thread")

ADAPTORS = {"torch_plain": torch_plain, "torch_ddp": torch_ddp, "torch_fsdp": torch_fsdp}
ADAPTORS |= {"torch_tensor": torch_tensor, "torch_pipeline": torch_pipeline}
TOLERANCE = 1e-4
MODEL = Gpt("tiny", num_layers=2, hidden_size=32, num_heads=4, seq_length=32, vocab_size=512)
TIED = replace(MODEL, tie_embeddings=True)
DEEP = replace(MODEL, num_layers=4)


def make_cell(framework: str, *degrees: int, model: Gpt = MODEL, **settings: Any) -> TrainingCell:
    return factories.trained_cell(*degrees, framework=framework, model=model, **settings)


REFERENCES = {
    (MODEL, "fp32"): "1 plain",
    (TIED, "fp32"): "1 plain tied",
    (DEEP, "fp32"): "1 plain deep",
    (MODEL, "bf16"): "1 plain bf16",
}
MISTAKES = ["2 forgets", "2 sums"]
# Keys begin with the number of processes.
CELLS = {
    "1 plain": make_cell("torch_plain", micro_batch=8),
    "1 plain tied": make_cell("torch_plain", micro_batch=8, model=TIED),
    "1 plain deep": make_cell("torch_plain", micro_batch=8, model=DEEP),
    "1 plain bf16": make_cell("torch_plain", micro_batch=8, precision="bf16"),
    "1 plain accumulating": make_cell("torch_plain", checkpointing="full"),
    "1 ddp": make_cell("torch_ddp", checkpointing="selective"),
    "1 fsdp": make_cell("torch_fsdp"),
    "1 tensor": make_cell("torch_tensor", micro_batch=4),
    "1 pipeline": make_cell("torch_pipeline"),
    "2 ddp": make_cell("torch_ddp", 2),
    "2 fsdp": make_cell("torch_fsdp", 2, checkpointing="selective", model=TIED),
    "2 fsdp keeping parameters": make_cell("torch_fsdp", 2, checkpointing="full", reshard_after_forward=False),
    "2 fsdp bf16": make_cell("torch_fsdp", 2, precision="bf16"),
    "2 tensor": make_cell("torch_tensor", tensor=2, micro_batch=4, model=TIED),
    "2 tensor selective": make_cell("torch_tensor", tensor=2, micro_batch=8, checkpointing="selective"),
    "2 tensor full bf16": make_cell("torch_tensor", tensor=2, micro_batch=8, checkpointing="full", precision="bf16"),
    "2 pipeline 1f1b": make_cell("torch_pipeline", pipeline=2, checkpointing="selective"),
    "2 pipeline gpipe": make_cell("torch_pipeline", pipeline=2, schedule="gpipe", checkpointing="full"),
    "2 pipeline bf16": make_cell("torch_pipeline", pipeline=2, precision="bf16"),
    "2 pipeline uneven": make_cell("torch_pipeline", pipeline=2, model=DEEP, stage_layers=(1, DEEP.num_layers - 1)),
    "2 fsdp shards": make_cell("torch_fsdp", 2, accumulate="shards", checkpointing="full"),
    **{mistake: make_cell("torch_ddp_wrong", 2, mistake=mistake.split()[1]) for mistake in MISTAKES},
    "4 ddp": make_cell("torch_ddp", 4, micro_batch=1),
    "4 fsdp": make_cell("torch_fsdp", 4, micro_batch=1),
    "4 tensor": make_cell("torch_tensor", tensor=4, micro_batch=8),
    "4 tensor x data": make_cell("torch_tensor", 2, 2, checkpointing="full"),
    "4 tensor x sharded data": make_cell("torch_tensor", 2, 2, data_sharding="full"),
    "4 tensor shards": make_cell("torch_tensor", 2, 2, data_sharding="full", accumulate="shards"),
    "4 pipeline": make_cell("torch_pipeline", pipeline=4, model=DEEP),
    "4 pipeline 1f1b x data": make_cell("torch_pipeline", 2, 1, 2),
    "4 pipeline gpipe x data": make_cell("torch_pipeline", 2, 1, 2, micro_batch=1, schedule="gpipe"),
}


@pytest.fixture(scope="module")
def losses() -> dict[str, list[float]]:
    """Of every layout's first batches."""
    return dict(zip(CELLS, train_cells(list(CELLS.values())), strict=True))


def largest_difference(ours: list[float], reference: list[float]) -> float:
    assert len(ours) == len(reference) == STEPS
    return max(abs(a - b) / abs(b) for a, b in zip(ours, reference, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CELLS if name not in MISTAKES])
def test_every_layout_trains_like_one_process(name: str, losses: dict[str, list[float]]) -> None:
    cell = CELLS[name]
    difference = largest_difference(losses[name], losses[REFERENCES[cell.model, cell.precision]])
    # bf16 keeps 8 bits: where a wrapper casts (FSDP) or sums (tensor shards) elsewhere, losses part early.
    assert difference <= (TOLERANCE if cell.precision == "fp32" else 2e-3)
    print(f"{name}: {difference:.1e}")


@pytest.mark.slow
def test_the_reference_learns(losses: dict[str, list[float]]) -> None:
    assert abs(losses["1 plain"][0] - 6.238) < 0.02  # ln 512: nothing known yet
    assert losses["1 plain"][-1] < losses["1 plain"][0] - 0.1


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_gradients_that_are_not_averaged_over_the_ranks_are_caught(
    mistake: str, losses: dict[str, list[float]]
) -> None:
    assert largest_difference(losses[mistake], losses["1 plain"]) > 10 * TOLERANCE


def test_a_static_loss_scale_changes_nothing() -> None:
    """Gradients and eps both 65536 times as large: AdamW takes the same steps."""
    weights = []
    for precision in ("fp32", "fp16"):
        cell = make_cell("torch_plain", precision=precision, device="cuda")
        model = build_on_meta(cell, autocast=False)
        materialize(model, cell, torch.device("cpu"))
        optimizer = make_optimizer(model.parameters(), cell)
        accumulate = MicroBatches(model, cell)
        for step in range(3):
            tokens = torch.arange(8 * 33).reshape(8, 33).add(step) % 512
            optimizer.zero_grad()
            loss = accumulate(tokens[:, :-1], tokens[:, 1:])
            assert 5 < loss < 7
            optimizer.step()
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert LOSS_SCALE["fp16"] == 65536
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-5, atol=1e-7)


def test_native_weights_of_large_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_model, "are_shared", lambda model: False)
    cell = make_cell("torch_plain")
    first, again = build_on_meta(cell), build_on_meta(cell)
    assert materialize(first, cell, torch.device("cpu")) == "native"
    materialize(again, cell, torch.device("cpu"))
    parameters = dict(first.named_parameters())
    for name, parameter in again.named_parameters():
        assert torch.equal(parameter, parameters[name]), name
    query, key = (parameters[f"blocks.0.attention.{part}.weight"] for part in ("query", "key"))
    assert not torch.equal(query, key)
    assert abs(query.std().item() - 0.02) < 0.002
    assert torch.all(parameters["final_norm.weight"] == 1) and torch.all(parameters["final_norm.bias"] == 0)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (make_cell("torch_pipeline", pipeline=4, micro_batch=4), "as many micro-batches as stages: there are 2 and 4"),
        (make_cell("torch_pipeline", pipeline=4, micro_batch=4, schedule="gpipe"), None),
        (make_cell("torch_pipeline", pipeline=2, model=TIED), "tied embeddings"),
        (make_cell("torch_pipeline", model=TIED), None),
        (make_cell("torch_tensor", tensor=3), "vocabulary of 512 cannot be split evenly over 3"),
        (make_cell("torch_ddp", precision="fp16"), "fp16 needs a GPU"),
        (make_cell("torch_ddp", precision="fp16", device="cuda"), None),
        (make_cell("torch_fsdp", precision="int8"), "precision int8"),
        (make_cell("torch_plain", checkpointing="some"), "checkpointing some"),
    ],
)
def test_what_cannot_run_is_said_beforehand(cell: TrainingCell, reason: str | None) -> None:
    said = ADAPTORS[cell.framework].unsupported_reason(cell)
    assert said is None if reason is None else reason in said


def test_adaptors_are_read_without_torch() -> None:
    program = "import sys; sys.modules['torch'] = sys.modules['numpy.random'] = None\n"
    program += "".join(f"import frameworks.{name}; frameworks.{name}.FRAMEWORK\n" for name in ADAPTORS)
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_stages_are_equal_and_cover_all_layers() -> None:
    layout = Layout(1, pipeline_parallel=4)
    stages = [stage_blocks(replace(MODEL, num_layers=12), layout, index) for index in range(4)]
    assert [layer for stage in stages for layer in stage] == list(range(12))
    assert {len(stage) for stage in stages} == {3}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_gpu_is_not_available() -> None:
    with pytest.raises(NotAvailable, match="no CUDA device"):
        torch_plain.create_engine(Job(make_cell("torch_plain", device="cuda"), 0, 1, 0))


def test_the_engine_measures_products_and_memory() -> None:
    cell = make_cell("torch_plain", precision="bf16")
    engine = torch_plain.create_engine(Job(cell, 0, 1, 0))
    seconds = engine.matmul_seconds(64, 3)
    assert len(seconds) == 3 and min(seconds) > 0
    assert (engine.initial_weights, engine.data_rank, engine.data_size) == ("shared", 0, 1)
    assert engine.settings["float32_matmul_precision"] == "highest"
    engine.reset_peak_memory()
    before = engine.peak_memory_bytes()
    if before is None:
        pytest.skip("this system does not let a process reset its peak memory")
    torch.ones(64 * 2**20 // 4)
    grown = engine.peak_memory_bytes() - before
    assert 60 * 2**20 < grown < 128 * 2**20
    engine.close()


def test_the_peak_is_unknown_where_it_cannot_be_reset(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    engine = torch_plain.create_engine(Job(make_cell("torch_plain"), 0, 1, 0))
    monkeypatch.setattr(memory, "RESET_FILE", tmp_path)  # a folder: writing fails
    engine.reset_peak_memory()
    assert engine.peak_memory_bytes() is None


def test_device_names(tmp_path: Any) -> None:
    information = tmp_path / "cpuinfo"
    information.write_text("processor\t: 0\nmodel name\t: Imaginary CPU @ 2 GHz\nflags\t\t: fpu\n")
    assert device_name(torch.device("cpu"), information) == "Imaginary CPU @ 2 GHz"
    assert device_name(torch.device("cpu"), tmp_path / "missing")


def raised_from(cause: BaseException) -> BaseException:
    error = RuntimeError("stage 0 failed to run forward")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (raised_from(torch.OutOfMemoryError("CUDA out of memory.")), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (torch.distributed.DistBackendError("NCCL error: Cuda failure 'CUDA out of memory'"), False),
        (RuntimeError("[gloo/transport/tcp/pair.cc:553] Cannot allocate memory"), False),
        (ValueError("std::bad_alloc"), False),
    ],
)
def test_out_of_memory_is_told_from_other_errors(error: BaseException, expected: bool) -> None:
    assert memory.is_out_of_memory(error) is expected


def test_a_real_allocation_that_cannot_succeed() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert memory.is_out_of_memory(caught.value)


def test_shares_are_cut_into_whole_micro_batches() -> None:
    """The planner refuses such a layout; an adaptor that hands out other shares must not train on a wrong mean."""
    vocabulary = 16

    def model(tokens: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*tokens.shape, vocabulary, requires_grad=True)

    tokens = torch.zeros(8, 4, dtype=torch.int64)
    whole = MicroBatches(model, make_cell("torch_plain", micro_batch=4))  # type: ignore[arg-type]
    assert whole(tokens, tokens).item() == pytest.approx(math.log(vocabulary))
    broken = MicroBatches(model, make_cell("torch_plain", micro_batch=3))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="8 sequences are not 2 micro-batches of 3"):
        broken(tokens, tokens)
    assert isinstance(build_on_meta(whole.cell), GPT)
