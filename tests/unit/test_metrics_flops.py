"""FLOP formulas and percentages against values worked out by hand (the numbers are written out, not computed)."""

import pytest

from factories import (
    HARDWARE,
    PAPER_12B,
    TINY,
    OtherArchitecture,
    make_cell,
    make_comparison,
    make_record,
    make_study,
    ok,
    planned,
)
from metrics import flops
from metrics.rows import measurement_rows

OTHER = OtherArchitecture(TINY)

# TINY: b = 8, s = 32, l = 2, h = 64, V = 512.
# b s l h^2 = 8 * 32 * 2 * 4096 = 2,097,152.
# Without recomputation: 72 * 2,097,152 = 150,994,944; times 1 + 32/384 + 512/1536 = 1 + 1/12 + 4/12 = 17/12.
MODEL_FLOPS = 213_909_504
# With one recomputed forward pass: 96 * 2,097,152 = 201,326,592; times 1 + 1/12 + 512/2048 = 16/12.
PAPER_FLOPS = 268_435_456


def test_flops_of_one_step():
    assert TINY.model_flops_per_step(8) == pytest.approx(MODEL_FLOPS, rel=1e-12)
    assert TINY.recomputing_flops_per_step(8) == pytest.approx(PAPER_FLOPS, rel=1e-12)


def test_model_flops_agree_with_counting_every_product():
    # Forward, per token: 2 FLOPs for each of 12 h^2 weights of a layer, 4 s h for scores and values, 2 h V for the
    # head; the backward pass does twice as much.
    forward = 2 * (2 * 12 * 64 * 64 + 4 * 32 * 64) + 2 * 64 * 512
    assert TINY.model_flops_per_step(8) == pytest.approx(3 * forward * 8 * 32, rel=1e-12)


def test_percentages():
    # Two GPUs of 1 GFLOP/s, half a second a step: 268.435456 MFLOP in a possible 1 GFLOP is 26.8435456 %.
    assert flops.percentage_of_peak_throughput(TINY, 8, 0.5, 1e9, 2) == pytest.approx(26.8435456)
    assert flops.model_flops_utilization_percent(TINY, 8, 0.5, 1e9, 2) == pytest.approx(21.3909504)
    assert flops.hardware_flops_utilization_percent(TINY, 8, 0.5, 1e9, 2, "full") == pytest.approx(26.8435456)
    assert flops.hardware_flops_utilization_percent(TINY, 8, 0.5, 1e9, 2, "none") == pytest.approx(21.3909504)
    assert flops.hardware_flops_utilization_percent(TINY, 8, 0.5, 1e9, 2, "selective") is None


def test_everything_is_empty_for_anOtherArchitecture_and_an_unknown_peak():
    assert OTHER.model_flops_per_step(8) is None
    assert flops.percentage_of_peak_throughput(OTHER, 8, 0.5, 1e9, 2) is None
    assert flops.model_flops_utilization_percent(OTHER, 8, 0.5, 1e9, 2) is None
    assert flops.hardware_flops_utilization_percent(OTHER, 8, 0.5, 1e9, 2, "full") is None
    assert flops.percentage_comparable_to_paper(OTHER, "full", "bf16") is None
    assert flops.percentage_of_peak_throughput(TINY, 8, 0.5, None, 2) is None


@pytest.mark.parametrize(
    ("checkpointing", "precision", "expected"),
    [
        ("full", "fp16", True),
        ("full", "bf16", True),
        ("full", "fp32", False),
        ("none", "bf16", False),
        ("selective", "fp16", False),
    ],
)
def test_comparable_to_the_paper_only_with_full_checkpointing_and_half_precision(checkpointing, precision, expected):
    assert flops.percentage_comparable_to_paper(TINY, checkpointing, precision) is expected


def test_training_time():
    # 3e11 tokens in steps of 8 * 32 = 256 tokens are 1,171,875,000 steps of 0.5 s.
    assert flops.expected_training_time_s(0.5, 8, 32) == 585_937_500.0


@pytest.mark.parametrize("global_batch_size", [48, 16_384])
def test_twelve_billion_parameters_at_54_78_percent_take_102_4_days(global_batch_size):
    # FLOPs a token: 96 * 48 * 4512^2 = 93,810,327,552; times 1 + 512/27072 + 51200/3465216 = 1.0336877 is 9.69706e10.
    # 48 GPUs at 54.78 % of 125 TFLOP/s do 3.2868e15 FLOP/s: 3e11 * 9.69706e10 / 3.2868e15 = 8,850,910 s = 102.44 days.
    batch_time_s = global_batch_size * 512 * 9.69706e10 / 3.2868e15
    days = flops.expected_training_time_s(batch_time_s, global_batch_size, 512) / 86_400
    assert days == pytest.approx(102.44, abs=0.005)
    percent = flops.percentage_of_peak_throughput(PAPER_12B, global_batch_size, batch_time_s, 125e12, 48)
    assert percent == pytest.approx(54.78, abs=0.001)


def test_the_same_example_through_the_rows():
    cell = make_cell(
        "axonn", 48, PAPER_12B, device="cuda", precision="fp16", activation_checkpointing="full", global_batch_size=48
    )
    record = make_record(cell, 1, 48 * 512 * 9.69706e10 / 3.2868e15, device_name="Tesla V100-SXM2-16GB")
    study = make_study([make_comparison([planned(cell)])], device="cuda")
    row = measurement_rows(study, {planned(cell).key: ok(record)}, HARDWARE).iloc[0]
    assert row["expected_training_time_s"] / 86_400 == pytest.approx(102.44, abs=0.005)
    assert row["percentage_of_peak_throughput"] == pytest.approx(54.78, abs=0.001)
    assert row["percentage_comparable_to_paper"]
    assert row["peak_flops_per_gpu"] == 125e12
    assert row["peak_source"] == "config/hardware.yaml: V100"
