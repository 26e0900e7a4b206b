"""What share of the hardware's peak the floating-point operations of a step amount to, and what follows from its time.

How many operations a step takes, the model's architecture says (models/). Functions return None where a value does not
exist for a cell (no formula for its architecture, selective checkpointing): the caller writes an empty field, never a
zero.
"""

from __future__ import annotations

from contracts.model import Model

TRAINING_TOKENS = 300e9  # the training run that the papers' "training days" stand for
SECONDS_PER_DAY = 86400.0
HALF_PRECISIONS = frozenset({"bf16", "fp16"})


def percentage_of_peak_throughput(
    model: Model, global_batch_size: int, batch_time_s: float, peak_flops_per_gpu: float | None, num_gpus: int
) -> float | None:
    """Return the paper's metric, in percent, whatever the cell recomputed (see `percentage_comparable_to_paper`)."""
    flops = model.recomputing_flops_per_step(global_batch_size)
    return _percent_of_peak(flops, batch_time_s, peak_flops_per_gpu, num_gpus)


def model_flops_utilization_percent(
    model: Model, global_batch_size: int, batch_time_s: float, peak_flops_per_gpu: float | None, num_gpus: int
) -> float | None:
    """Return model FLOP/s over the peak of all GPUs, in percent; recomputed work does not count."""
    return _percent_of_peak(model.model_flops_per_step(global_batch_size), batch_time_s, peak_flops_per_gpu, num_gpus)


def hardware_flops_utilization_percent(
    model: Model,
    global_batch_size: int,
    batch_time_s: float,
    peak_flops_per_gpu: float | None,
    num_gpus: int,
    activation_checkpointing: str,
) -> float | None:
    """Return FLOP/s really done over the peak, in percent; None with selective checkpointing (unknown work)."""
    if activation_checkpointing == "full":
        flops = model.recomputing_flops_per_step(global_batch_size)
    elif activation_checkpointing == "none":
        flops = model.model_flops_per_step(global_batch_size)
    else:
        flops = None
    return _percent_of_peak(flops, batch_time_s, peak_flops_per_gpu, num_gpus)


def percentage_comparable_to_paper(model: Model, activation_checkpointing: str, precision: str) -> bool | None:
    """Say whether the paper's percentage means the same here as there: full checkpointing, half precision, a
    model that the paper's formula holds for."""
    if model.recomputing_flops_per_step(1) is None:
        return None
    return activation_checkpointing == "full" and precision in HALF_PRECISIONS


def is_above_peak(utilization_percent: float | None, hardware_utilization_percent: float | None) -> bool:
    """Say whether more was done than the peak allows, so that the peak or the times are wrong."""
    return any(percent is not None and percent > 100 for percent in (utilization_percent, hardware_utilization_percent))


def expected_training_time_s(batch_time_s: float, global_batch_size: int, seq_length: int) -> float:
    """Return the seconds to train on 300 billion tokens at this pace: 3e11 t / (b s) (arXiv:2110.13005)."""
    return TRAINING_TOKENS * batch_time_s / (global_batch_size * seq_length)


def _percent_of_peak(
    flops_per_step: float | None, batch_time_s: float, peak_flops_per_gpu: float | None, num_gpus: int
) -> float | None:
    if flops_per_step is None or peak_flops_per_gpu is None:
        return None
    return 100.0 * flops_per_step / batch_time_s / (peak_flops_per_gpu * num_gpus)
