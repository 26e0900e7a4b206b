"""The layouts that a study names for a framework: checked, and resolved at each point of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contracts.adaptor import Framework
from contracts.cell import Layout
from contracts.errors import ConfigError, nearest, shown_value
from contracts.model import Model
from planning import checks
from planning.adaptors import COMMON_LAYOUT_KEYS

# In place of the numbers of `stage_layers`.
ONE_LESS_AT_ENDS = "one_less_at_ends"


def check_layout_keys(
    where: str, layouts: list[Mapping[str, Any]], framework: Framework, models: Mapping[str, Model]
) -> list[Mapping[str, Any]]:
    """Return the layouts as they are; raise ConfigError for a wrong key, option or model in one. `where` heads it."""
    known = (*COMMON_LAYOUT_KEYS, *framework.options)
    for layout in layouts:
        for key, value in layout.items():
            if key not in known:
                raise ConfigError(f"{where}.layouts: unknown key {shown_value(key)}{nearest(key, known)}")
            if key in framework.options:
                checks.check_option(f"{where}.layouts.{key}", value, framework.options[key])
        for model in layout.get("models", ()):
            if model not in models:
                raise ConfigError(
                    f"{where}.layouts.models: there is no model {shown_value(model)}{nearest(model, models)}"
                )
        if layout.get("tensor_parallel") == layout.get("pipeline_parallel") == "all":
            raise ConfigError(f"{where}.layouts: tensor_parallel and pipeline_parallel cannot both be `all`")
    return layouts


def layouts_at(
    candidates: list[Mapping[str, Any]],
    framework: Framework,
    model: Model,
    num_gpus: int,
    config: Mapping[str, Any],
) -> Iterator[tuple[int, Layout]]:
    """Yield the layouts that are candidates for a model on so many GPUs, each with its index among all of them.

    Whether a layout fits the GPUs, the batch and the model is not checked here (`checks.check_split`).
    """
    for index, candidate in enumerate(candidates):
        if num_gpus not in candidate.get("num_gpus", [num_gpus]) or model.name not in candidate.get(
            "models", [model.name]
        ):
            continue
        degrees = {axis: candidate.get(f"{axis}_parallel", 1) for axis in ("tensor", "pipeline")}
        fixed = [degree for degree in degrees.values() if degree != "all"]
        rest, left = divmod(num_gpus, fixed[0] if len(fixed) == 1 else fixed[0] * fixed[1])
        # Where the degrees do not divide the GPUs, check_split says so, from the product.
        rest = max(rest, 1) if not left else 1
        tensor, pipeline = (rest if degrees[axis] == "all" else degrees[axis] for axis in ("tensor", "pipeline"))
        data = candidate.get("data_parallel", rest if len(fixed) == 2 else 1)
        yield (
            index,
            Layout(
                data_parallel=data,
                tensor_parallel=tensor,
                pipeline_parallel=pipeline,
                micro_batch_size=candidate.get("micro_batch_size", config["micro_batch_size"]),
                options={key: candidate.get(key, allowed[0]) for key, allowed in framework.options.items()},
                default_options={key: allowed[0] for key, allowed in framework.options.items()},
                stage_layers=_stage_layers(candidate.get("stage_layers", ()), model, pipeline),
            ),
        )


def _stage_layers(given: Sequence[int] | str, model: Model, stages: int) -> tuple[int, ...]:
    """Return the layers of each stage; nothing where all have the same number, as if nothing had been said.

    `one_less_at_ends` takes one layer from the first and the last stage, which have the embedding and the head besides.
    """
    if given == ONE_LESS_AT_ENDS:
        total = model.shape()["num_layers"] + 2
        # Where this does not go up, the architecture says so of the numbers.
        counts = [total // stages] * stages
        counts[0] -= 1
        counts[-1] -= 1
    else:
        counts = [int(count) for count in given]
    is_even = len(counts) == stages and len(set(counts)) == 1
    return () if is_even and sum(counts) == model.shape()["num_layers"] else tuple(counts)


def check_all_used(where: str, candidates: Mapping[str, list[Any]], matched: set[tuple[str, int]]) -> None:
    """A candidate that no point ever takes is a setting that would be ignored in silence."""
    for framework, layouts in candidates.items():
        for index, layout in enumerate(layouts):
            if (framework, index) not in matched:
                raise ConfigError(
                    f"{where}: frameworks.{framework}.layouts: {shown_value(dict(layout))} is a candidate at no "
                    f"point of any comparison; correct its num_gpus or models, or remove it"
                )
