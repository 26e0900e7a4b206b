"""The memory estimate: worked out by hand, against what torch allocates, and on the papers' studies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contracts.cell import Layout
from contracts.errors import ConfigError
from contracts.storage import StateStorage
from factories import PAPER_12B, OtherArchitecture, make_cell
from frameworks import torch_fsdp, torch_pipeline, torch_tensor
from models.gpt import Gpt
from pipeline_memory import peak_bytes, stage_peaks
from planning.adaptors import load_adaptor
from planning.memory_estimate import (
    GIB,
    RESERVE_GIB,
    MemoryEstimate,
    estimate_for,
    estimate_memory,
    gpu_memory_gib,
    micro_batches_in_flight,
    stage_estimates,
)
from planning.plan_lines import missing_lines
from planning.studies import load_hardware
from studies import ROOT, comparison, cpu_system, expand, study_config
from workloads.training.training_cell import TrainingCell

# 12 h^2 of one layer, V h, s h and s h again as the numbers of one micro-batch's residual stream.
LAYER_12B, TABLE_12B, STREAM_12B = 244_297_728, 231_014_400, 2_310_144
MEGATRON_BF16 = StateStorage(
    parameter_bytes=2, gradient_bytes=4, optimizer_bytes=12, autocast=False, attention_score_bytes=6
)


def paper_cell(tensor: int, pipeline: int, data: int = 1, **changes: Any) -> TrainingCell:
    """The 12 billion parameter model of arXiv:2110.13005, as its studies train it."""
    fields = {"precision": "bf16", "activation_checkpointing": "full", "global_batch_size": 18432, "device": "cuda"}
    layout = Layout(data, tensor, pipeline)
    return make_cell(num_gpus=layout.num_gpus, model=PAPER_12B, **{**fields, "layout": layout, **changes})


def in_bytes(gib: float) -> float:
    return gib * GIB


# -- worked out by hand ------------------------------------------------------------------------------------------------


def test_twelve_billion_parameters_in_megatrons_mixed_precision() -> None:
    estimate = estimate_memory(paper_cell(tensor=2, pipeline=24), MEGATRON_BF16)
    assert estimate is not None
    # The first of 24 stages: two layers and the token embedding, halved, two times 13 h and the position embedding.
    parameters = LAYER_12B + TABLE_12B / 2 + 2 * 13 * 4512 + STREAM_12B
    assert parameters == 362_232_384
    assert in_bytes(estimate.parameters_gib) == pytest.approx(2 * parameters)
    assert in_bytes(estimate.gradients_gib) == pytest.approx(4 * parameters)
    assert in_bytes(estimate.optimizer_gib) == pytest.approx(12 * parameters)
    # 24 micro-batches in flight, each with two layers' inputs and what the stage sends, in half precision.
    assert in_bytes(estimate.activations_gib) == pytest.approx(24 * 3 * 2 * STREAM_12B)
    # The embedding's gradient, more than a layer's backward pass needs.
    assert in_bytes(estimate.working_gib) == pytest.approx(2 * TABLE_12B / 2)
    assert estimate.total_gib == pytest.approx(6.60, abs=0.01)


def test_autocast_over_float32_weights_on_one_gpu() -> None:
    estimate = estimate_memory(paper_cell(tensor=1, pipeline=1))
    assert estimate is not None
    assert in_bytes(estimate.parameters_gib) == pytest.approx(4 * PAPER_12B.num_parameters)
    assert in_bytes(estimate.gradients_gib) == pytest.approx(4 * PAPER_12B.num_parameters)
    assert in_bytes(estimate.optimizer_gib) == pytest.approx(8 * PAPER_12B.num_parameters)
    assert in_bytes(estimate.activations_gib) == pytest.approx(48 * 4 * STREAM_12B)
    # At the end of the forward pass: autocast's copies of all weights, the inputs of norm and head, what the norm put
    # out before it was cast, the logits.
    copies = 2 * (48 * LAYER_12B + TABLE_12B)
    assert in_bytes(estimate.working_gib) == pytest.approx(copies + 10 * STREAM_12B + 2 * 512 * 51200)


def test_shards_divide_what_they_are_of() -> None:
    whole = estimate_memory(paper_cell(1, 1, data=48), StateStorage(2, 2, 12, autocast=False))
    zero = StateStorage(2, 2, 12, parameter_shards=48, gradient_shards=24, optimizer_shards=12, autocast=False)
    sharded = estimate_memory(paper_cell(1, 1, data=48), zero)
    assert sharded.parameters_gib == pytest.approx(whole.parameters_gib / 48)
    assert sharded.gradients_gib == pytest.approx(whole.gradients_gib / 24)
    assert sharded.optimizer_gib == pytest.approx(whole.optimizer_gib / 12)
    assert sharded.activations_gib == whole.activations_gib


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_a_layer_without_checkpointing_is_that_of_the_paper(tensor: int) -> None:
    """Equation 2 of arXiv:2205.05198, without the masks of three dropouts: 2 s b h and a s^2 b/t bytes."""
    cell = paper_cell(tensor, 1, activation_checkpointing="none")
    scores = StateStorage(autocast=False, attention_score_bytes=4)  # what softmax puts out, and what dropout did there
    a, s, h = 24, 512, 4512
    per_layer = s * h * (10 + 24 / tensor + 5 * a * s / (h * tensor)) - s * h * (2 + a * s / (h * tensor))
    assert in_bytes(estimate_memory(cell, scores).activations_gib) == pytest.approx(48 * per_layer)
    selective = replace(cell, activation_checkpointing="selective")
    without_scores = s * h * (8 + 24 / tensor)
    attention = replace(scores, selective="attention")
    assert in_bytes(estimate_memory(selective, attention).activations_gib) == pytest.approx(48 * without_scores)
    split = replace(attention, sequence_parallel=True)
    assert in_bytes(estimate_memory(selective, split).activations_gib) == pytest.approx(48 * s * h * 32 / tensor)


@pytest.mark.parametrize(
    ("schedule", "chunks", "micro_batches", "expected"),
    [
        ("1f1b", 1, 100, (8, 1)),
        ("1f1b", 1, 3, (3, 1)),
        ("1f1b", 2, 100, (11.5, 4.5)),  # p (1 + (p - 1)/(p v)); Megatron's last rank begins with (v - 1) p + 1 chunks
        ("gpipe", 1, 100, (100, 100)),
    ],
)
def test_micro_batches_in_flight(schedule: str, chunks: int, micro_batches: int, expected: tuple[float, float]) -> None:
    storage = StateStorage(schedule=schedule, virtual_stages=chunks)
    assert micro_batches_in_flight(storage, 8, micro_batches) == expected


@pytest.mark.parametrize("tie_embeddings", [False, True])
def test_a_stage_that_is_the_whole_model_has_all_parameters(tie_embeddings: bool) -> None:
    model = replace(PAPER_12B, tie_embeddings=tie_embeddings)
    estimate = estimate_memory(make_cell(model=model, layout=Layout(1)))
    assert in_bytes(estimate.parameters_gib) == pytest.approx(4 * model.num_parameters)


def test_the_optimizers_step_counts_when_activations_are_gone() -> None:
    cell = paper_cell(1, 1)
    small, large = (estimate_memory(cell, StateStorage(autocast=False, step_bytes=step)) for step in (0.01, 4))
    assert small == estimate_memory(cell, StateStorage(autocast=False))
    assert in_bytes(large.working_gib + large.activations_gib) == pytest.approx(4 * PAPER_12B.num_parameters)


def test_a_cell_that_fits_leaves_the_reserve() -> None:
    assert MemoryEstimate(4, 4, 4, 2, 14.0 - 14).fits(14 + RESERVE_GIB)
    assert not MemoryEstimate(4, 4, 4, 2, 0.1).fits(14 + RESERVE_GIB)


def test_OtherArchitectures_have_no_estimate() -> None:
    assert estimate_memory(make_cell(model=OtherArchitecture(PAPER_12B))) is None


# -- against what torch allocates --------------------------------------------------------------------------------------

DEEP = Gpt("deep", num_layers=3, hidden_size=128, num_heads=2, seq_length=64, vocab_size=512)
WIDE = Gpt("wide", num_layers=2, hidden_size=128, num_heads=2, seq_length=16, vocab_size=2048)
SCALARS_BYTES = 64  # of losses and their scale


def left_out_bytes(cell: TrainingCell) -> int:
    """Return the most that torch may allocate beyond the estimate: what that leaves out, by number format."""
    model, tokens = cell.model, cell.layout.micro_batch_size * cell.model.seq_length
    # In float32: mean and deviation of two norms a layer and of the last one, and attention's softmax for each head.
    statistics = 4 * tokens * (2 * (2 * model.num_layers + 1) + model.num_layers * model.num_heads)
    # A layer has biases of 9 h numbers, of which autocast makes copies.
    copied_biases = 0 if cell.precision == "fp32" else 2 * 9 * model.hidden_size * model.num_layers
    return statistics + copied_biases + SCALARS_BYTES


def reordered_bytes(cell: TrainingCell) -> int:
    """Return the most that a product of a layer or of the head allocates in bf16 beside its result.

    On a processor with bf16 units oneDNN multiplies reordered blocks of the factors. How large these are is its own to
    say, so it is measured on each product by itself; a GPU has nothing of the kind.
    """
    import torch

    h, tokens = cell.model.hidden_size, cell.layout.micro_batch_size * cell.model.seq_length
    scratch = 0
    for inner, columns in ((h, h), (h, 4 * h), (4 * h, h), (h, cell.model.vocab_size)):
        x, weight, gradient = (
            torch.zeros(shape, dtype=torch.bfloat16) for shape in ((tokens, inner), (columns, inner), (tokens, columns))
        )
        for left, right in ((x, weight.t()), (gradient, weight), (gradient.t(), x)):
            result = 2 * left.shape[0] * right.shape[1]
            scratch = max(scratch, peak_bytes(partial(torch.mm, left, right)) - result)
    return scratch


def allocated_and_estimated(model: Gpt, checkpointing: str, precision: str) -> tuple[int, int, TrainingCell]:
    """Return the peak of a step's passes over what is there between two of them (weights, gradients, optimizer state),
    as torch allocates and as it is estimated.
    """
    import torch

    from frameworks.torch.torch_engine import MicroBatches
    from frameworks.torch.torch_model import build_on_meta, materialize

    layout = Layout(1, micro_batch_size=2)
    changes = {"precision": precision, "activation_checkpointing": checkpointing, "global_batch_size": 4}
    cell = make_cell("torch_plain", model=model, layout=layout, **changes)
    gpt = build_on_meta(cell)
    materialize(gpt, cell, torch.device("cpu"))
    passes = MicroBatches(gpt, cell)
    tokens = torch.zeros(4, model.seq_length, dtype=torch.int64)
    passes(tokens, tokens)  # makes the gradients, which stay
    estimate = estimate_memory(cell)
    estimated = round(in_bytes(estimate.activations_gib + estimate.working_gib))
    return peak_bytes(lambda: passes(tokens, tokens)), estimated, cell


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize("model", [DEEP, WIDE], ids=["deep", "wide"])
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.usefixtures("one_thread")
def test_plain_torch_allocates_what_is_estimated(model: Gpt, checkpointing: str, precision: str) -> None:
    """With torch's own kernels, as on a GPU: to what the estimate leaves out, which is 1 % and less."""
    import torch

    with torch.backends.mkldnn.flags(enabled=False):
        allocated, estimated, cell = allocated_and_estimated(model, checkpointing, precision)
    assert left_out_bytes(cell) < 0.01 * estimated
    assert estimated <= allocated <= estimated + left_out_bytes(cell)


@pytest.mark.parametrize("checkpointing", ["selective", "full"])
@pytest.mark.usefixtures("one_thread")
def test_a_processor_with_bf16_units_adds_what_its_kernels_reorder(checkpointing: str) -> None:
    allocated, estimated, cell = allocated_and_estimated(DEEP, checkpointing, "bf16")
    assert estimated <= allocated <= estimated + left_out_bytes(cell) + reordered_bytes(cell)


@pytest.mark.slow
def test_torchs_pipeline_has_a_buffer_for_every_micro_batch() -> None:
    """Three stages of one layer, each in a process: the peak of the first step, in which the buffers are made."""
    model = Gpt("pipelined", num_layers=3, hidden_size=64, num_heads=2, seq_length=64, vocab_size=128)
    cells = [
        make_cell(
            "torch_pipeline",
            3,
            model,
            layout=Layout(1, 1, 3, micro_batch_size=2, options={"schedule": schedule}),
            global_batch_size=64,
        )
        for schedule in ("1f1b", "gpipe")
    ]
    for cell, peaks in zip(cells, stage_peaks(cells), strict=True):
        estimates = stage_estimates(cell, torch_pipeline.stored_state(cell))
        # The first step makes the gradients too.
        expected = {
            stage: round(in_bytes(estimate.gradients_gib + estimate.activations_gib + estimate.working_gib))
            for stage, estimate in estimates.items()
        }
        assert dict(enumerate(peaks)) == pytest.approx(expected, rel=0.03), cell.layout.options


def test_a_stage_receives_what_its_neighbours_send() -> None:
    """The 12 billion parameter model in 48 stages on 48 GPUs: 317 GiB of buffers, where all else needs 5."""
    cell = paper_cell(1, 48, framework="torch_pipeline", precision="fp16")
    estimate = estimate_for(torch_pipeline, cell)
    buffers = 2 * 18432 * 4 * STREAM_12B  # two directions, float32
    assert buffers / GIB == pytest.approx(317.25)
    # The second stage keeps of 47 micro-batches what it sends; what it received lies in the buffers.
    assert in_bytes(estimate.activations_gib) == pytest.approx(buffers + 47 * 4 * STREAM_12B)
    assert estimate.total_gib == pytest.approx(322.3, abs=0.1)
    larger = replace(cell, layout=replace(cell.layout, micro_batch_size=4))
    assert in_bytes(estimate_for(torch_pipeline, larger).activations_gib) == pytest.approx(
        buffers + 47 * 4 * 4 * STREAM_12B
    )


def test_two_stages_receive_in_one_direction_each() -> None:
    cell = paper_cell(1, 2, framework="torch_pipeline", precision="fp16")
    with_buffers, without = (
        stage_estimates(cell, replace(torch_pipeline.stored_state(cell), buffer_per_micro_batch=has))
        for has in (True, False)
    )
    assert sorted(with_buffers) == [0, 1]
    more = {stage: in_bytes(with_buffers[stage].activations_gib - without[stage].activations_gib) for stage in (0, 1)}
    assert more[0] == pytest.approx(18432 * 4 * STREAM_12B)
    # Of its micro-batch in flight the last stage keeps no copy beside the buffer, and sends nothing on.
    assert more[1] == pytest.approx((18432 - 2) * 4 * STREAM_12B)


# -- adaptors ----------------------------------------------------------------------------------------------------------


def fsdp_cell(**options: Any) -> TrainingCell:
    return paper_cell(1, 1, data=48, framework="torch_fsdp", layout=Layout(48, options=options))


def test_fsdp_that_reduces_once_a_step_holds_all_gradients() -> None:
    whole, shards = (estimate_for(torch_fsdp, fsdp_cell(accumulate=how)) for how in ("whole", "shards"))
    assert in_bytes(whole.gradients_gib) == pytest.approx(4 * PAPER_12B.num_parameters)
    assert in_bytes(shards.gradients_gib) == pytest.approx(4 * PAPER_12B.num_parameters / 48)
    one_micro_batch = replace(fsdp_cell(), global_batch_size=48)
    assert estimate_for(torch_fsdp, one_micro_batch).gradients_gib == shards.gradients_gib


def test_fsdp_that_keeps_parameters_holds_all_in_half_precision() -> None:
    kept, freed = (estimate_for(torch_fsdp, fsdp_cell(reshard_after_forward=again)) for again in (False, True))
    assert in_bytes(kept.parameters_gib - freed.parameters_gib) == pytest.approx(2 * PAPER_12B.num_parameters)
    assert kept.working_gib < freed.working_gib


def test_tensor_shards_are_replicated_or_sharded() -> None:
    def estimate(**options: Any) -> MemoryEstimate:
        return estimate_for(torch_tensor, replace(paper_cell(2, 1, 24), layout=Layout(24, 2, options=options)))

    assert estimate().optimizer_gib == pytest.approx(estimate(data_sharding="full").optimizer_gib * 24)
    assert estimate(data_sharding="full").gradients_gib == estimate().gradients_gib
    shards = estimate(data_sharding="full", accumulate="shards")
    assert shards.gradients_gib == pytest.approx(estimate().gradients_gib / 24)
    refused = replace(paper_cell(2, 1, 24), layout=Layout(24, 2, options={"accumulate": "shards"}))
    assert "needs data_sharding: full" in torch_tensor.unsupported_reason(refused)


# -- what a dry run prints ---------------------------------------------------------------------------------------------


def test_ddp_adds_micro_batches_up_beside_its_buckets() -> None:
    def gradients_gib(micro_batch: int, pipeline: int = 1, framework: str = "torch_ddp") -> float:
        layout = Layout(2 // pipeline, pipeline_parallel=pipeline, micro_batch_size=micro_batch)
        cell = make_cell(framework, 2, PAPER_12B, layout=layout, global_batch_size=8)
        return in_bytes(estimate_for(load_adaptor(framework), cell).gradients_gib)

    one = gradients_gib(4)
    assert one == pytest.approx(4 * PAPER_12B.num_parameters)
    assert gradients_gib(2) == pytest.approx(2 * one)
    assert gradients_gib(1, pipeline=2, framework="torch_pipeline") < one  # no data ranks, no buckets


def test_the_memory_of_a_gpu_is_the_systems_limit_or_its_devices() -> None:
    hardware = load_hardware(ROOT)
    gpu = cpu_system(device="cuda", devices=("NVIDIA H100 80GB HBM3",))
    assert gpu_memory_gib(gpu, hardware) == 80
    assert gpu_memory_gib(replace(gpu, memory_limit_gib=16), hardware) == 16
    assert gpu_memory_gib(replace(gpu, devices=("V100",)), hardware) is None  # of 16 or of 32 GB
    assert gpu_memory_gib(cpu_system(), hardware) is None
    assert gpu_memory_gib(cpu_system(memory_limit_gib=2), hardware) == 2


def test_a_dry_run_tells_what_each_cell_needs_and_marks_what_will_not_fit(tmp_path: Path) -> None:
    points = comparison("strong", [("small", 1), ("small", 8)])
    config = study_config(frameworks={"torch_ddp": None}, comparisons=points)
    roomy, tight = (
        list(missing_lines(expand(config, cpu_system(memory_limit_gib=limit)), tmp_path)) for limit in (None, 1.5)
    )
    # 1,623,008 parameters, nearly all of embedding and head, and 12 bytes of loss for 8 x 50304 logits.
    needs = "about 29 MiB a process (parameters 6, gradients 6, optimizer 12, activations 0, working set 5)"
    # DDP adds eight micro-batches up beside its buckets.
    alone = "about 36 MiB a process (parameters 6, gradients 12, optimizer 12, activations 0, working set 5)"
    assert roomy == [
        "study: 1 of 1 cells to measure on here",
        f"    torch_ddp, small, 1 process, batch 8, data 1, micro-batch 1, at most 30 minutes, {alone}",
        f"    torch_ddp, small, 8 processes, batch 8, data 8, micro-batch 1, 2 nodes, not started: needs 8 processes, "
        f"this system (here) has 4, {needs}",
    ]
    assert tight[1:] == [f"{line}, predicted NOT to fit 1.5 GiB with 1.5 to spare" for line in roomy[1:]]


def test_an_adaptor_whose_storage_cannot_be_asked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_fsdp, "stored_state", lambda cell: 1 / 0)
    study = expand(study_config(frameworks={"torch_fsdp": None}))
    with pytest.raises(ConfigError, match=r"scripts/frameworks/torch_fsdp.py: stored_state failed for torch_fsdp"):
        list(missing_lines(study, tmp_path))
