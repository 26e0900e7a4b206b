"""Study files -> cells: what they expand to, and every pitfall refused with its own message."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from matrix.checks import check_model
from matrix.config import check_config, read_yaml
from matrix.errors import ConfigError
from matrix.frameworks import environment_identity, load_adaptor, recipe_digest
from matrix.plan import index_cells
from matrix.plan_lines import missing_lines, plan_lines
from matrix.studies import load_study, load_system, study_names, unusable_studies
from matrix.systems import system_from_config
from studies import MODELS, ROOT, comparison, cpu_system, expand, study_config


def refused(config: dict[str, Any], system: Any = None) -> str:
    with pytest.raises(ConfigError) as caught:
        expand(config, system)
    return str(caught.value)


def ddp_layout(**layout: Any) -> dict[str, Any]:
    return {"frameworks": {"torch_ddp": {"layouts": [layout]}}}


def test_a_study_expands_in_the_order_of_its_file() -> None:
    study = expand(study_config(repeats=2))
    assert [(p.cell.framework, p.cell.num_gpus, p.repeat) for p in study.planned] == [
        ("torch_ddp", 1, 1), ("torch_ddp", 1, 2), ("torch_ddp", 2, 1), ("torch_ddp", 2, 2),
        ("torch_tensor", 1, 1), ("torch_tensor", 1, 2), ("torch_tensor", 2, 1), ("torch_tensor", 2, 2),
    ]  # fmt: skip
    assert [p.cell.layout.tensor_parallel for p in study.planned] == [1, 1, 1, 1, 1, 1, 2, 2]
    assert [p.cell.layout.data_parallel for p in study.planned] == [1, 1, 2, 2, 1, 1, 1, 1]


def test_a_cell_of_two_comparisons_is_one_cell() -> None:
    again = {
        **comparison("strong", [("small", 1), ("small", 2)]),
        "again": {"scaling": "none", "points": [{"model": "small", "num_gpus": 2}]},
    }
    study = expand(study_config(comparisons=again))
    assert len(study.planned) == 6
    assert len(study.runnable()) == 4


def test_candidates_that_come_to_the_same_are_one_cell() -> None:
    frameworks = {"torch_tensor": {"layouts": [{"tensor_parallel": "all"}, {"tensor_parallel": 1}]}}
    study = expand(study_config(frameworks=frameworks))
    assert [p.cell.layout.tensor_parallel for p in study.planned] == [1, 2, 1]


def test_batch_size_per_gpu_grows_with_the_gpus() -> None:
    study = expand(study_config(
        frameworks={"torch_ddp": None}, global_batch_size=None, batch_size_per_gpu=4,
        comparisons=comparison("weak_batch", [("small", 1), ("small", 2)]),
    ))  # fmt: skip
    assert [p.cell.global_batch_size for p in study.planned] == [4, 8]


# -- the papers' pitfalls ----------------------------------------------------------------------------------------------


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


# -- obstacles ---------------------------------------------------------------------------------------------------------


def test_a_framework_without_the_parallelism_is_unsupported() -> None:
    study = expand(study_config(frameworks={"torch_ddp": {"layouts": [{"tensor_parallel": "all"}]}}))
    assert [p.obstacle.status if p.obstacle else None for p in study.planned] == [None, "unsupported"]
    assert "no tensor parallelism" in study.planned[1].obstacle.reason


def test_two_names_for_one_shape_are_refused() -> None:
    """They are one cell, and its record lies under one of the names."""
    points = comparison("none", [("small", 1), ("same", 1)])
    same = {"small": MODELS["small"], "same": replace(MODELS["small"], name="same")}
    with pytest.raises(ConfigError, match="the models small and same have the same shape; use one of them"):
        expand(study_config(frameworks={"torch_ddp": None}, comparisons=points), models=same)


def test_a_cell_of_two_studies_gets_the_longer_time_limit() -> None:
    points = comparison("strong", [("small", 1)])
    studies = [
        expand(study_config(frameworks={"torch_ddp": None}, comparisons=points, time_limit_minutes=minutes))
        for minutes in (2, 1)
    ]
    for order in (studies, studies[::-1]):
        ((_, values),) = index_cells(order).items()
        assert values["time_limit_s"] == 120


def test_a_cell_larger_than_the_system_is_planned_and_never_run() -> None:
    points = comparison("strong", [("small", 1), ("small", 8)])
    study = expand(study_config(frameworks={"torch_ddp": None}, comparisons=points))
    assert [p.cell.num_gpus for p in study.runnable()] == [1]
    assert study.too_large()[0].obstacle.reason == "needs 8 processes, this system (here) has 4"


def test_cells_that_are_too_large_are_summed_up_once_and_listed_once(tmp_path: Path) -> None:
    points = comparison("strong", [("small", 8), ("small", 16)])
    study = expand(study_config(frameworks={"torch_ddp": None}, comparisons=points, repeats=2, global_batch_size=16))
    assert plan_lines(study) == [
        f"{study.name}: 4 cells planned and not started: they need 8, 16 processes, this system (here) has 4"
    ]
    assert [line.partition(", about")[0] for line in missing_lines(study, tmp_path)] == [
        f"    torch_ddp, small, {n} processes, data {n}, micro-batch 1, {n // 4} nodes, not started: "
        f"needs {n} processes, this system (here) has 4"
        for n in (8, 16)
    ]


def test_the_plan_names_what_will_not_run_and_what_will(tmp_path: Path) -> None:
    points = comparison("strong", [("small", 1), ("small", 2), ("small", 4)])
    layouts = [{"tensor_parallel": "all"}]
    study = expand(study_config(frameworks={"torch_ddp": {"layouts": layouts}}, comparisons=points, repeats=2))
    assert plan_lines(study) == [
        f"{study.name}: torch_ddp, small, {n} processes, tensor {n}, micro-batch 1: unsupported: "
        "torch_ddp has no tensor parallelism (it has data)"
        for n in (2, 4)
    ]
    assert list(missing_lines(study, tmp_path)) == [
        f"{study.name}: 2 of 2 cells to measure on here",
        "    torch_ddp, small, 1 process, data 1, micro-batch 1, 2 repeats, at most 30 minutes, about 36 MiB a process "
        "(parameters 6, gradients 12, optimizer 12, activations 0, working set 5)",
    ]


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"reapeats": 2}, "unknown key 'reapeats' (did you mean 'repeats'?"),
        ({"precision": "fp23"}, "precision: 'fp23' is not allowed (did you mean 'fp32'?"),
        ({"repeats": 2.0}, "repeats: 2.0 is not a whole number"),
        ({"seed": 10**29}, "seed: 100000000000000000000000000000 is greater than the maximum"),
        ({"learning_rate": "1e-4"}, "learning_rate: '1e-4' is not a number; YAML takes it for a text, write 1.0e-04"),
        ({"tables": "strong_scaling"}, "tables: 'strong_scaling' is not a list, such as [one, two]"),
        ({"learning_rate": float("nan")}, "learning_rate: nan is not a number"),
        ({"learning_rate": float("inf")}, "learning_rate: inf is not a number"),
        ({"time_limit_minutes": 10**400}, "time_limit_minutes"),
        ({"comparisons": {"a\n": {"scaling": "none"}}}, "does not match"),
        ({"repeats": 0}, "repeats: 0 is less than the minimum of 1"),
        ({"title": None}, "missing key 'title'"),
        ({"frameworks": {"torch_dpp": None}}, "in scripts/frameworks (did you mean 'torch_ddp'?"),
        (ddp_layout(tensor_paralel=2), "unknown key 'tensor_paralel' (did you mean 'tensor_parallel'?"),
        ({"frameworks": {"torch_pipeline": {"layouts": [{"schedule": "1fb1"}]}}}, "(did you mean '1f1b'?"),
        (
            {"frameworks": {"deepspeed": {"layouts": [{"zero_stage": "3"}]}}},
            "'3' is not allowed (did you mean 3, without quotes? known: 0, 1, 2, 3)",
        ),
        (ddp_layout(num_gpus=[7]), "candidate at no point"),
        ({"corpus": "bundeld"}, "did you mean 'bundled'?"),
        (ddp_layout(micro_batch_size="08"), "'08' is not a whole number; YAML takes it for a text, write 8"),
        ({"learning_rate": "1.25e14"}, "YAML takes it for a text, write 1.25e+14"),
        ({"learning_rate": "0.3"}, "write 3.0e-01"),
        ({"learning_rate": "30"}, "YAML takes it for a text, write 30"),
        ({"learning_rate": "1_000.5"}, "write 1.0005e+03"),
        ({"comparisons": comparison("strong", [("smal", 1)])}, "no model 'smal' (did you mean 'small'?"),
        ({"comparisons": {"main": {"scaling": "strong"}}}, "has neither `points` nor `cross`"),
        ({"comparisons": comparison("strong", [("small", 1)], frameworks=["torch_fsdp"])}, "is none of the study's"),
        ({"global_batch_size": None}, "no batch size"),
        ({"batch_size_per_gpu": 2}, "both given"),
        ({"time_limit_minutes": {"default": 1, "smal": 2}}, "no model 'smal'"),
    ],
)  # fmt: skip
def test_mistakes_name_the_file_the_key_and_the_nearest_right_one(change: dict[str, Any], expected: str) -> None:
    message = refused(study_config(**change))
    assert message.startswith("study.yaml")
    assert expected in message


@pytest.mark.parametrize(
    ("title", "shown"), [("a\nb\n", "a b"), ("a\rb", "a b"), ("a\x07\ud800b", "a b"), (" a ", "a"), ("é 日", "é 日")]
)
def test_a_title_is_one_line(title: str, shown: str) -> None:
    assert expand(study_config(title=title)).title == shown


@pytest.mark.parametrize("title", ["", " ", "\n"])
def test_a_title_is_something(title: str) -> None:
    assert refused(study_config(title=title)).startswith("study.yaml: title: ")


def test_a_reason_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from frameworks import torch_ddp

    monkeypatch.setattr(torch_ddp, "unsupported_reason", lambda cell: "no\r\nsuch\x1bthing\ud800")
    study = expand(study_config(frameworks={"torch_ddp": None}))
    assert {p.obstacle.reason for p in study.planned if p.obstacle} == {"no such thing"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "is not valid YAML"),
        ("a: 1\na: 2", "key 'a' is given twice"),
        ("\x00", "is not valid YAML"),
        ("? [a, b]\n: 1", "a key is a list or a mapping"),
        (f"a: {'9' * 5000}", "line 1: a number of 5000 digits is too large"),
    ],
)
def test_files_that_are_no_yaml(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=expected):
        read_yaml(path, tmp_path)


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text("a: 1")
    with pytest.raises(ConfigError, match=r"demi.yaml: there is no such file \(did you mean 'demo'"):
        read_yaml(tmp_path / "demi.yaml", tmp_path)


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_a_file_that_is_no_mapping_is_refused(data: Any) -> None:
    with pytest.raises(ConfigError, match="top level"):
        check_config(data, "study", ROOT, "study.yaml")


@pytest.mark.parametrize("name", study_names(ROOT))
def test_every_study_of_the_project_can_be_planned(name: str) -> None:
    study = load_study(name, "local", ROOT)
    assert study.planned


def test_environments_ignore_comments_and_order(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "a.txt").write_text("# why\nb==1  # because\na==2\n\n")
    (tmp_path / "envs" / "b.txt").write_text("a==2\nb==1\n")
    first, second = (environment_identity(name, tmp_path)["requirements"] for name in ("a", "b"))
    assert first == second == ["a==2", "b==1"]


def test_environments_hold_what_they_include_and_their_recipe(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "a.txt").write_text("a==2\n")
    (tmp_path / "envs" / "b.txt").write_text("-r a.txt\nb==1\n")
    plain = environment_identity("b", tmp_path)
    assert plain == {"name": "b", "requirements": ["a==2", "b==1"]}
    (tmp_path / "envs" / "b.sh").write_text("make\n")
    assert len(environment_identity("b", tmp_path)["recipe_sha256"]) == 64
    # Mending a recipe that could not build on some machines keeps the ids of the cells that it built for on others.
    before = environment_identity("horovod", ROOT)["recipe_sha256"]
    assert before == "99e748a7ff77f47d730386ca91e6589672a3b96bef89a74f69e41162dbf5dbf2"
    assert recipe_digest(b"echo build\n") == hashlib.sha256(b"echo build\n").hexdigest()
    (tmp_path / "envs" / "b.txt").write_text("-r gone.txt\n")
    with pytest.raises(ConfigError, match=r"envs/gone\.txt: No such file"):
        environment_identity("b", tmp_path)


# -- systems -----------------------------------------------------------------------------------------------------------


def system_config(**changes: Any) -> dict[str, Any]:
    return check_config({"device": "auto", **changes}, "system", ROOT, "system.yaml")


def test_auto_takes_the_gpus_that_are_there() -> None:
    system = system_from_config("here", system_config(), found=("H100", "H100"))
    assert (system.device, system.devices, system.gpus_per_node, system.max_gpus) == ("cuda", ("H100",), 2, 2)


def test_auto_takes_processes_where_there_are_none() -> None:
    system = system_from_config("here", system_config(cpu_processes=3), found=())
    assert (system.device, system.devices, system.gpus_per_node, system.max_gpus) == ("cpu", (), 3, 3)


def test_a_named_device_is_not_asked_for() -> None:
    config = system_config(device="cuda", devices=["V100"], gpus_per_node=6, num_nodes=64, slurm={"extra": []})
    assert system_from_config("summit", config).max_gpus == 384


def test_a_number_that_is_to_be_asked_for_where_there_is_no_gpu_is_refused() -> None:
    with pytest.raises(ValueError, match="the driver shows no GPU"):
        system_from_config("here", system_config(device="cuda", devices=["V100"]), found=())


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["$(touch pwn)", "my study", "q'x", "a;b", "a{b}", "-n", "a" * 101, "ä"])
def test_a_name_that_a_shell_would_read_otherwise_is_no_target(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "config" / "studies"
    folder.mkdir(parents=True)
    (folder / f"{name}.yaml").write_text("title: x")
    (folder / "fine.yaml").write_text("title: x")
    assert study_names(tmp_path) == ["fine"]
    assert list(unusable_studies(tmp_path, ())) == [name]
    with pytest.raises(ConfigError, match="a name is letters"):
        load_study(name, "local", ROOT)
    with pytest.raises(ConfigError, match="a name is letters"):
        load_system(name, ROOT)


def test_a_rules_name_is_no_studys(tmp_path: Path) -> None:
    (tmp_path / "config" / "studies").mkdir(parents=True)
    (tmp_path / "config" / "studies" / "train_cell.yaml").write_text("title: x")
    assert "a rule of the workflow has this name" in unusable_studies(tmp_path, {"train_cell"})["train_cell"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise SystemExit(3)", "cannot be imported: SystemExit"),
        ("x = (", "cannot be imported: SyntaxError"),
        ("x = 1", "lacks FRAMEWORK"),
        ("FRAMEWORK = 1\nunsupported_reason = create_engine = None", "FRAMEWORK is no training.contract.Framework"),
    ],
)
def test_a_broken_adaptor_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str) -> None:
    import frameworks

    (tmp_path / "broken_adaptor.py").write_text(text)
    monkeypatch.setattr(frameworks, "__path__", [*frameworks.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "frameworks.broken_adaptor", raising=False)
    with pytest.raises(ConfigError, match=r"scripts/frameworks/broken_adaptor.py") as caught:
        load_adaptor("broken_adaptor")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"repeats": 100_000},
            r"study\.yaml: plans 200,000 measurements \(100,000 of every cell\) or more",
        ),
        (
            {"comparisons": {"main": {"scaling": "none", "cross": {"models": ["small"], "num_gpus": [1] * 200_000}}}},
            r"comparisons\.main: plans 200,000 measurements or more",
        ),
    ],
)
def test_a_plan_without_end_is_refused_with_its_number(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        expand(study_config(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"frameworks": {"x" * 5000: None}},
        {"frameworks": {"torch_ddp": {"layouts": [{"x" * 5000: 1}]}}},
        {"frameworks": {"torch_ddp": {"layouts": [{"models": ["x" * 5000]}]}}},
        {"frameworks": {"torch_ddp": {"layouts": [{"num_gpus": [2000 + i for i in range(5000)]}]}}},
        {"comparisons": comparison("none", [("x" * 5000, 1)])},
        {"comparisons": comparison("none", [("small", 1)], frameworks=["x" * 5000])},
        {"time_limit_minutes": {"default": 1, "x" * 5000: 1}},
    ],
)
def test_a_message_shows_the_beginning_of_a_long_value(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as found:
        expand(study_config(**changes))
    assert len(str(found.value)) < 1000
