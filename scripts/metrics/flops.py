"""Floating-point operations of one optimizer step, and what share of the hardware's peak they amount to.

The formulas are those of the AxoNN paper (arXiv:2110.13005, its evaluation metrics): a GPT-style decoder whose
feed-forward is 4 x hidden_size, trained with b sequences of s tokens a step. Throughout, b is `global_batch_size`
(sequences), s `seq_length` (tokens), l `num_layers`, h `hidden_size`, V `vocab_size` (tokens).

Functions return None where a value does not exist for a cell (another architecture, selective checkpointing): the
caller writes an empty field, never a zero.
"""

from __future__ import annotations

from contracts.cell import Model

TRAINING_TOKENS = 300e9  # the training run that the papers' "training days" stand for
SECONDS_PER_DAY = 86400.0
HALF_PRECISIONS = frozenset({"bf16", "fp16"})


def has_known_flops(model: Model) -> bool:
    """Say whether the formulas below hold for this shape: a GPT with a feed-forward of 4 x hidden_size."""
    return model.architecture == "gpt"


def model_flops_per_step(model: Model, global_batch_size: int) -> float | None:
    """Return the FLOPs of one step without recomputation: 72 b s l h^2 (1 + s/(6h) + V/(12 l h)); None for no GPT.

    The head is in the last term; it is never recomputed, hence 12 here against 16 in the paper's formula.
    """
    if not has_known_flops(model):
        return None
    s, layers, h, vocab = model.seq_length, model.num_layers, model.hidden_size, model.vocab_size
    return 72.0 * global_batch_size * s * layers * h * h * (1 + s / (6 * h) + vocab / (12 * layers * h))


def recomputing_flops_per_step(model: Model, global_batch_size: int) -> float | None:
    """Return the FLOPs of one step with a recomputed forward pass of layers: 96 b s l h^2 (1 + s/(6h) + V/(16 l h))."""
    if not has_known_flops(model):
        return None
    s, layers, h, vocab = model.seq_length, model.num_layers, model.hidden_size, model.vocab_size
    return 96.0 * global_batch_size * s * layers * h * h * (1 + s / (6 * h) + vocab / (16 * layers * h))


def percentage_of_peak_throughput(
    model: Model, global_batch_size: int, batch_time_s: float, peak_flops_per_gpu: float | None, num_gpus: int
) -> float | None:
    """Return the paper's metric, in percent, whatever the cell recomputed (see `percentage_comparable_to_paper`)."""
    flops = recomputing_flops_per_step(model, global_batch_size)
    return _percent_of_peak(flops, batch_time_s, peak_flops_per_gpu, num_gpus)


def model_flops_utilization_percent(
    model: Model, global_batch_size: int, batch_time_s: float, peak_flops_per_gpu: float | None, num_gpus: int
) -> float | None:
    """Return model FLOP/s over the peak of all GPUs, in percent; recomputed work does not count."""
    return _percent_of_peak(model_flops_per_step(model, global_batch_size), batch_time_s, peak_flops_per_gpu, num_gpus)


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
        flops = recomputing_flops_per_step(model, global_batch_size)
    elif activation_checkpointing == "none":
        flops = model_flops_per_step(model, global_batch_size)
    else:
        flops = None
    return _percent_of_peak(flops, batch_time_s, peak_flops_per_gpu, num_gpus)


def percentage_comparable_to_paper(model: Model, activation_checkpointing: str, precision: str) -> bool | None:
    """Say whether the paper's percentage means the same here as there: full checkpointing, half precision, a GPT."""
    if not has_known_flops(model):
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
