"""The papers' pitfalls, each refused with its own message before anything runs.

Every function takes plain values and `where` (file and key) and raises ConfigError, or returns nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from contracts.cell import Layout
from contracts.devices import Device
from contracts.errors import ConfigError, in_yaml, nearest, shown_value
from contracts.model import Model
from settings.gpus import is_slice
from workloads.training.loop import NUM_BATCHES, NUM_WARMUP_BATCHES

GPT2_NUM_TOKENS = 50257
# Ten times what a plan of all frameworks on the largest systems has.
MOST_PLANNED = 100_000

Point = tuple[Model, int, int]  # model, number of GPUs, global batch size


def check_window(where: str, window: Mapping[str, Any]) -> None:
    """The mean is over the last 10 of 11 batches (arXiv:2110.13005); the first one warms up."""
    if window["warmup_batches"] < NUM_WARMUP_BATCHES:
        raise ConfigError(
            f"{where}.window.warmup_batches: {window['warmup_batches']} would let the warm-up batch into the mean; "
            f"the first batch allocates, compiles and connects, so leave it at {NUM_WARMUP_BATCHES}"
        )
    if (window["batches"], window["warmup_batches"]) != (NUM_BATCHES, NUM_WARMUP_BATCHES):
        raise ConfigError(
            f"{where}.window: every measurement is {NUM_BATCHES} batches with {NUM_WARMUP_BATCHES} of warm-up, as in "
            f"the papers, so that all records can be compared; leave the key out"
        )


def check_number_planned(where: str, number: int, repeats: int) -> None:
    """Raise ConfigError for more measurements than a study has: a slip in a number would fill memory and queue."""
    if number > MOST_PLANNED:
        each = f" ({repeats:,} of every cell)" if repeats > 1 else ""
        raise ConfigError(
            f"{where}: plans {number:,} measurements{each} or more, and at most {MOST_PLANNED:,} are planned; "
            f"take fewer repeats or points, or make several studies"
        )


def check_shapes(where: str, models: Iterable[Model]) -> None:
    """Two names for one shape would be one cell, whose record lies in the folder of one of the names."""
    named: dict[str, str] = {}
    for model in models:
        other = named.setdefault(repr(model.shape()), model.name)
        if other != model.name:
            raise ConfigError(f"{where}: the models {other} and {model.name} have the same shape; use one of them")


def check_scaling(where: str, scaling: str, points: Sequence[Point]) -> None:
    """What may differ between the points of one comparison."""
    models = {model.name for model, _, _ in points}
    batches = {batch for _, _, batch in points}
    if scaling == "none":
        return
    if len(models) > 1 and len(batches) > 1:
        raise ConfigError(
            f"{where}: batch size ({_listed(batches)}) and model ({_listed(models)}) both vary in one comparison, so a "
            f"difference could be due to either; keep one of them, or make two comparisons"
        )
    if scaling in ("strong", "weak_model") and len(batches) > 1:
        raise ConfigError(
            f"{where}: {scaling} scaling keeps the global batch, but it is {_listed(batches)} here; use one"
        )
    if scaling == "weak_batch":
        if len(models) > 1:
            raise ConfigError(f"{where}: weak_batch scaling keeps the model, but there are {_listed(models)}; use one")
        per_gpu = {batch / num_gpus for _, num_gpus, batch in points}
        if len(per_gpu) > 1:
            raise ConfigError(
                f"{where}: weak_batch scaling keeps the batch per GPU, but it is {_listed(per_gpu)} here; "
                f"give batch_size_per_gpu instead of global_batch_size"
            )
    if scaling == "weak_model":
        by_gpus: dict[int, Model] = {}
        for model, num_gpus, _ in points:
            other = by_gpus.setdefault(num_gpus, model)
            if other.name != model.name:
                raise ConfigError(
                    f"{where}: weak_model scaling has one model for each number of GPUs, but {num_gpus} GPUs have "
                    f"{other.name} and {model.name}"
                )
        check_growth(where, [by_gpus[n] for n in sorted(by_gpus)])


def check_growth(where: str, models: Sequence[Model]) -> None:
    """The layers of the models grow from one to the next, in width or number, and nothing else of them changes.

    A longer sequence or a larger vocabulary changes what the work of a step is, and with it every efficiency.
    """
    for field in dict.fromkeys(field for model in models for field in model.besides_layers()):
        values = {model.besides_layers().get(field) for model in models}
        if len(values) > 1:
            raise ConfigError(
                f"{where}: weak_model scaling changes the layers of the model alone, but {field} is {_listed(values)} "
                f"here; use models that have the same"
            )
    for smaller, larger in pairwise(models):
        if larger.layers_size <= smaller.layers_size:
            raise ConfigError(
                f"{where}: under weak_model scaling the model grows with the GPUs, but the layers of {larger.name} "
                f"are not larger than those of {smaller.name}"
            )


def check_option(where: str, value: Any, allowed: Sequence[Any]) -> None:
    """An option has one of the values that its adaptor declares, of the same type: true is 1 to Python, not to ids."""
    if any(type(value) is type(known) and value == known for known in allowed):
        return
    equal = [known for known in allowed if value == known]
    hint = f"; write {in_yaml(equal[0])}" if equal else nearest(value, allowed)
    raise ConfigError(f"{where}: {in_yaml(value) if equal else shown_value(value)} is not allowed{hint}")


def check_model(where: str, model: Model) -> None:
    if mistake := model.mistake():
        raise ConfigError(f"{where}: {mistake}")


def check_vocabulary(where: str, model: Model) -> None:
    if model.vocab_size < GPT2_NUM_TOKENS:
        raise ConfigError(
            f"{where}: model {model.name} has vocab_size {model.vocab_size}, but the corpus is cut into GPT-2 tokens "
            f"numbered up to {GPT2_NUM_TOKENS - 1}; use at least {GPT2_NUM_TOKENS} (50304 divides well)"
        )


def check_split(where: str, model: Model, layout: Layout, num_gpus: int, global_batch_size: int) -> None:
    """The layout must cover the GPUs, cut the batch into equal parts, and the model as its architecture allows."""
    tensor, pipeline = layout.tensor_parallel, layout.pipeline_parallel
    if layout.num_gpus != num_gpus:
        product = f"tensor {tensor} x pipeline {pipeline} x data {layout.data_parallel} is {layout.num_gpus} GPUs"
        raise ConfigError(
            f"{where}: {product}, not {num_gpus}; degrees must divide the GPUs: use `all`, or say at which `num_gpus` "
            f"the layout is a candidate"
        )
    if mistake := model.cut_mistake(layout):
        raise ConfigError(f"{where}: {mistake}")
    share = layout.data_parallel * layout.micro_batch_size
    if global_batch_size % share:
        raise ConfigError(
            f"{where}: global batch {global_batch_size} is not divisible by data_parallel {layout.data_parallel} x "
            f"micro_batch_size {layout.micro_batch_size} = {share}, so ranks would train on unequal shares"
        )


def check_devices(where: str, device: Device, devices: Sequence[str], hardware: Mapping[str, Any]) -> None:
    """One known device kind a system. On a CPU the peak is measured, so there is nothing to know."""
    if device.peak_is_measured:
        return
    if not devices:
        raise ConfigError(f"{where}: `devices` names no GPU, so no peak can be looked up; add its name")
    if len(devices) > 1:
        raise ConfigError(
            f"{where}: the system has two device kinds or more ({', '.join(devices)}), and numbers of two kinds share "
            f"no comparison; describe each as a system of its own"
        )
    check_peak(where, devices[0], hardware)


def check_peak(where: str, device_name: str, hardware: Mapping[str, Any]) -> None:
    """A default peak would make every percentage wrong without a sign of it."""
    known = known_devices(hardware)
    if device_name not in known:
        # A slice of a GPU bears the name of the whole, and has a fraction of its peak.
        hint = "" if is_slice(device_name) else nearest(device_name, known)
        raise ConfigError(
            f"{where}: the peak of {shown_value(device_name)} is not known; add it to config/hardware.yaml with its "
            f"dense half-precision FLOP/s and the source{hint}, or train on the CPU with `device: cpu`"
        )


def known_devices(hardware: Mapping[str, Any]) -> Collection[str]:
    """Every name a device goes by: its key in hardware.yaml and the names that drivers give it."""
    return [name for key, entry in hardware.items() for name in (key, *entry.get("driver_names", ()))]


def _listed(values: Collection[Any]) -> str:
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in sorted(values))
