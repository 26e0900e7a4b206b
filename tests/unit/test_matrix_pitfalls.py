"""Every pitfall of the papers' own kind that a study file can fall into is refused with its own message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contracts.errors import ConfigError
from planning.checks import check_model
from studies import MODELS, comparison, cpu_system, expand, refused, study_config


def test_batch_and_model_both_varying_are_refused() -> None:
    points = [{"model": "small", "num_gpus": 1, "global_batch_size": 4}, {"model": "large", "num_gpus": 2}]
    message = refused(study_config(comparisons={"main": {"scaling": "weak_model", "points": points}}))
    assert "comparisons.main" in message
    assert "both vary in one comparison" in message


def test_strong_scaling_keeps_the_batch() -> None:
    points = [{"model": "small", "num_gpus": 1, "global_batch_size": 4}, {"model": "small", "num_gpus": 2}]
    message = refused(study_config(comparisons={"main": {"scaling": "strong", "points": points}}))
    assert "strong scaling keeps the global batch" in message


def test_weak_model_scaling_grows_the_model() -> None:
    assert "the model grows" in refused(
        study_config(comparisons=comparison("weak_model", [("large", 1), ("small", 2)]))
    )
    assert "one model for each" in refused(
        study_config(comparisons=comparison("weak_model", [("small", 1), ("large", 1)]))
    )


def test_weak_batch_scaling_keeps_the_batch_per_gpu() -> None:
    message = refused(study_config(comparisons=comparison("weak_batch", [("small", 1), ("small", 2)])))
    assert "keeps the batch per GPU" in message


def test_a_window_with_the_warm_up_batch_is_refused() -> None:
    message = refused(study_config(window={"batches": 11, "warmup_batches": 0}))
    assert "window.warmup_batches" in message
    assert "warm-up batch into the mean" in message


def test_another_window_is_refused() -> None:
    assert "every measurement is 11 batches" in refused(study_config(window={"batches": 20}))


def test_a_batch_that_ranks_cannot_share_is_refused() -> None:
    message = refused(study_config(global_batch_size=3, frameworks={"torch_ddp": None}))
    assert "global batch 3 is not divisible by data_parallel 2" in message
    assert "torch_ddp" in message


def test_layers_and_heads_that_cannot_be_split_are_refused() -> None:
    points = comparison("none", [("small", 3)])
    heads = {"torch_tensor": {"layouts": [{"tensor_parallel": 3}]}}
    layers = {"torch_pipeline": {"layouts": [{"pipeline_parallel": 3}]}}
    assert "4 heads of small are not divisible by tensor_parallel 3" in refused(
        study_config(frameworks=heads, comparisons=points)
    )
    assert "4 layers of small are not divisible by 3 pipeline stages" in refused(
        study_config(frameworks=layers, comparisons=points)
    )


def test_degrees_that_do_not_divide_the_gpus_are_refused() -> None:
    frameworks = {"torch_tensor": {"layouts": [{"tensor_parallel": 2}]}}
    assert "is 2 GPUs, not 1" in refused(study_config(frameworks=frameworks))


def test_an_unknown_device_is_refused() -> None:
    system = cpu_system(device="cuda", devices=("GTX 42",))
    message = refused(study_config(), system)
    assert "peak of 'GTX 42' is not known" in message
    assert "config/hardware.yaml" in message


def test_a_name_the_driver_gives_is_known() -> None:
    expand(study_config(), cpu_system(device="cuda", devices=("Tesla V100",)))


def test_two_device_kinds_are_refused() -> None:
    system = cpu_system(device="cuda", devices=("V100", "A100"))
    message = refused(study_config(), system)
    assert "two device kinds" in message
    assert message.startswith("config/systems/here.yaml")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"seq_length": 16}, "changes the layers of the model alone, but seq_length is 8, 16 here"),
        ({"vocab_size": 51200}, "but vocab_size is 50304, 51200 here"),
        ({"tie_embeddings": True}, "but tie_embeddings is False, True here"),
        (
            {"hidden_size": 16, "num_layers": 4, "num_heads": 8},
            "the layers of large are not larger than those of small",
        ),
        ({"seq_length": 16, "hidden_size": 16, "num_layers": 4}, "but seq_length is 8, 16 here"),
    ],
)
def test_weak_model_scaling_grows_the_layers_alone(change: dict[str, Any], expected: str) -> None:
    """Each of them grows the number of parameters, or did before, and passed for the paper's weak scaling."""
    models = {**MODELS, "large": replace(MODELS["large"], **change)}
    points = comparison("weak_model", [("small", 1), ("large", 2)])
    expand(study_config(frameworks={"torch_ddp": None}, comparisons=points))
    with pytest.raises(ConfigError) as caught:
        expand(study_config(frameworks={"torch_ddp": None}, comparisons=points), models=models)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("framework", "option", "value", "expected"),
    [
        ("deepspeed", "zero_stage", True, "zero_stage: true is not allowed; write 1"),
        ("deepspeed", "zero_stage", False, "zero_stage: false is not allowed; write 0"),
        ("deepspeed", "zero_stage", 1.0, "zero_stage: 1.0 is not allowed; write 1"),
        ("torch_fsdp", "reshard_after_forward", 0, "reshard_after_forward: 0 is not allowed; write false"),
        ("torch_fsdp", "reshard_after_forward", 1, "reshard_after_forward: 1 is not allowed; write true"),
        ("torch_fsdp", "reshard_after_forward", "true", "(did you mean true, without quotes?"),
        ("deepspeed", "zero_stage", [1], "zero_stage: [1] is not allowed"),
    ],
)
def test_options_are_compared_with_their_type(framework: str, option: str, value: Any, expected: str) -> None:
    """Equal to Python, they were cells with ids of their own, which crashed."""
    assert expected in refused(study_config(frameworks={framework: {"layouts": [{option: value}]}}))


def test_a_vocabulary_below_the_tokenizers_is_refused() -> None:
    models = {"small": MODELS["small"].__class__(**{**MODELS["small"].__dict__, "vocab_size": 512})}
    with pytest.raises(ConfigError, match=r"vocab_size 512.*at least 50257"):
        expand(study_config(), models=models)


def test_a_width_that_heads_cannot_share_is_refused() -> None:
    model = MODELS["small"].__class__(**{**MODELS["small"].__dict__, "hidden_size": 18})
    with pytest.raises(ConfigError, match="hidden_size 18 is not divisible by num_heads 4"):
        check_model("models.yaml: small", model)
