"""Mistakes in files of config/ and envs/ and in names: one message with file, key and the nearest right one."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from planning.adaptors import environment_identity, load_adaptor, recipe_digest
from planning.studies import load_study, load_system, study_names, unusable_studies
from settings.config import check_config, read_yaml
from studies import ROOT, comparison, expand, refused, study_config


def ddp_layout(**layout: Any) -> dict[str, Any]:
    return {"frameworks": {"torch_ddp": {"layouts": [layout]}}}


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
        ("FRAMEWORK = 1\nunsupported_reason = create_engine = None", "FRAMEWORK is no contracts.adaptor.Framework"),
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


# -- long values


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
