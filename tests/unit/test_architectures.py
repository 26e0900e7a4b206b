"""Architectures are files of models/, and a pipeline may cut their layers unevenly."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import models
from contracts.cell import Layout
from contracts.errors import ConfigError
from contracts.model import Model
from models.architectures import architecture_names, model_of
from models.gpt import Gpt, layers_of_stages, stage_blocks
from planning.adaptors import load_adaptor
from planning.memory_estimate import estimate_for
from studies import MODELS, comparison, expand, refused, study_config
from workloads.lookup import cell_from_identity, load_workload

ENTRY = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "seq_length": 8, "vocab_size": 50304, "source": "tests"}
# All that an architecture is: one file.
PERCEPTRON = '''"""Test double: layers of products and nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Perceptron:
    name: str
    width: int
    depth: int
    seq_length: int
    vocab_size: int
    architecture: str = "perceptron"
    source: str = ""
    shown_as: str = ""

    @property
    def num_parameters(self):
        return self.depth * self.width**2

    @property
    def layers_size(self):
        return self.num_parameters

    @property
    def tokens_per_sample(self):
        return self.seq_length

    def besides_layers(self):
        return {"seq_length": self.seq_length}

    def shape(self):
        return {"architecture": "perceptron", "width": self.width, "depth": self.depth, "seq_length": self.seq_length,
                "vocab_size": self.vocab_size}

    def model_flops_per_step(self, global_batch_size):
        return 6.0 * global_batch_size * self.seq_length * self.num_parameters

    def recomputing_flops_per_step(self, global_batch_size):
        return None

    def parameter_shapes(self):
        return {f"layer.{index}": (self.width, self.width) for index in range(self.depth)}

    def mistake(self):
        return "" if self.width % 2 == 0 else f"width {self.width} is odd"

    def cut_mistake(self, layout):
        return "it cannot be cut" if layout.pipeline_parallel > 1 else ""


SHAPE = Perceptron
'''


@pytest.fixture
def perceptron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    (tmp_path / "perceptron.py").write_text(PERCEPTRON)
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    entry = {"architecture": "perceptron", "width": 4, "depth": 3, "seq_length": 8, "vocab_size": 50304}
    return model_of("mlp", {**entry, "source": "tests"})


def test_an_architecture_is_one_file(perceptron: Model) -> None:
    """It is found, planned, refused by the adaptors that do not train it, and its cells have ids of their own."""
    assert isinstance(perceptron, Model) and isinstance(Gpt("any", **ENTRY), Model)
    assert {"gpt", "perceptron"} <= set(architecture_names())
    study = expand(study_config(comparisons=comparison("strong", [("mlp", 1)])), models={"mlp": perceptron})
    one = study.planned[0].cell
    obstacles = {planned.obstacle.reason for planned in study.planned if planned.obstacle}
    assert obstacles == {f"{name} trains gpt models, not perceptron" for name in ("torch_ddp", "torch_tensor")}
    assert one.identity()["model"]["width"] == 4
    again = cell_from_identity(one.identity(), "mlp")
    assert (again.cell_id, again.subject, again.model.num_parameters) == (one.cell_id, "mlp", 48)
    assert estimate_for(load_adaptor("torch_ddp"), one) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "gtp"}, r"there is no architecture 'gtp' \(did you mean 'gpt'"),
        ({"architecture": "weights"}, "there is no architecture 'weights'"),
        ({"architecture": "../gpt"}, "there is no architecture"),
        ({"architecture": 5}, "there is no architecture 5"),
        ({"num_layer": 3}, r"unknown key 'num_layer' \(did you mean 'num_layers'"),
        ({"num_heads": ...}, "missing key 'num_heads'"),
    ],
)
def test_a_wrong_entry_says_what_is_right(change: dict[str, object], message: str) -> None:
    entry = {key: value for key, value in {**ENTRY, **change}.items() if value is not ...}
    with pytest.raises(ConfigError, match=message):
        model_of("any", entry)


def test_an_unknown_workload_is_refused_with_the_known_ones() -> None:
    for name in ("trainin", "exchange", "../training"):
        with pytest.raises(ConfigError, match=r"there is no workload .*known: training"):
            load_workload(name)


def test_stages_of_unequal_numbers_of_layers_cover_the_model() -> None:
    """62 layers on 4 stages with one less in the first and the last, as in arXiv:2203.12533."""
    model = Gpt("any", **{**ENTRY, "num_layers": 62})
    layout = Layout(1, pipeline_parallel=4, stage_layers=(15, 16, 16, 15))
    assert model.cut_mistake(layout) == ""
    stages = [stage_blocks(model, layout, index) for index in range(4)]
    assert [layer for stage in stages for layer in stage] == list(range(62))
    assert layers_of_stages(model, layout) == (15, 16, 16, 15)
    assert "layers 15-16-16-15" in layout.label()


def candidates(**layout: object) -> dict[str, object]:
    frameworks = {"torch_pipeline": {"layouts": [{"pipeline_parallel": "all", **layout}]}}
    return study_config(frameworks=frameworks, comparisons=comparison("strong", [("small", 2), ("small", 4)]))


def test_an_uneven_cut_is_another_cell_and_an_even_one_is_what_it_was() -> None:
    plain = [planned.cell for planned in expand(candidates()).planned]
    models_of_six = {"small": dataclasses.replace(MODELS["small"], num_layers=6)}
    uneven = [p.cell for p in expand(candidates(stage_layers="one_less_at_ends"), models=models_of_six).planned]
    assert [cell.layout.stage_layers for cell in uneven] == [(), (1, 2, 2, 1)]
    assert "stage_layers" not in plain[0].identity()["layout"]
    assert uneven[1].identity()["layout"]["stage_layers"] == [1, 2, 2, 1]
    assert cell_from_identity(uneven[1].identity(), "small").cell_id == uneven[1].cell_id
    # What was said of a cut that is even anyway changes no id.
    two = study_config(
        frameworks={"torch_pipeline": {"layouts": [{"pipeline_parallel": 2, "stage_layers": [2, 2]}]}},
        comparisons=comparison("strong", [("small", 2)]),
    )
    assert [planned.cell.cell_id for planned in expand(two).planned] == [plain[0].cell_id]


@pytest.mark.parametrize(
    ("stage_layers", "message"),
    [
        ([1, 2], "stage_layers (1, 2) are 3 layers, and small has 4"),
        ([1, 2, 1], "stage_layers (1, 2, 1) has 3 entries for 2 pipeline stages"),
        ("two_less_at_ends", "did you mean 'one_less_at_ends'?"),
        ([0, 4], "0"),
    ],
)
def test_a_cut_that_does_not_go_up_is_refused(stage_layers: object, message: str) -> None:
    assert message in refused(candidates(stage_layers=stage_layers, num_gpus=[2]))


def test_a_stage_without_a_layer_is_refused() -> None:
    """One less at the ends of two layers on four stages would leave none there."""
    model = dataclasses.replace(MODELS["small"], num_layers=2)
    config = candidates(stage_layers="one_less_at_ends", num_gpus=[4])
    config["comparisons"] = comparison("strong", [("small", 4)])
    with pytest.raises(ConfigError, match=r"stage_layers \(0, 1, 1, 0\) leaves a stage of small without a layer"):
        expand(config, models={"small": model})


def test_who_cannot_cut_unevenly_does_not_support_it() -> None:
    layout = {"pipeline_parallel": 2, "stage_layers": [1, 3]}
    config = study_config(
        frameworks={"axonn": {"layouts": [layout]}, "torch_pipeline": {"layouts": [layout]}},
        comparisons=comparison("strong", [("small", 2)]),
    )
    obstacles = {planned.cell.framework: planned.obstacle for planned in expand(config).planned}
    assert obstacles["torch_pipeline"] is None
    assert obstacles["axonn"].status == "unsupported"
    assert obstacles["axonn"].reason == "axonn gives every pipeline stage the same number of layers"


def test_the_estimate_sees_the_fullest_stage() -> None:
    model = dataclasses.replace(MODELS["large"], num_layers=12, hidden_size=4096, num_heads=32)

    def total_gib(*stage_layers: int) -> float:
        layouts = [{"pipeline_parallel": 4, "stage_layers": list(stage_layers)}]
        config = study_config(
            frameworks={"torch_pipeline": {"layouts": layouts}}, comparisons=comparison("strong", [("large", 4)])
        )
        (planned,) = expand(config, models={"large": model}).planned
        estimate = estimate_for(load_adaptor("torch_pipeline"), planned.cell)
        assert estimate is not None
        return estimate.total_gib

    even, ends, middle = total_gib(3, 3, 3, 3), total_gib(2, 4, 4, 2), total_gib(1, 1, 9, 1)
    assert ends < even < middle
    # Nine layers of 12 h^2 + 13 h parameters: weights, gradients and AdamW's moments in float32.
    assert middle == pytest.approx(16 * 9 * (12 * 4096**2 + 13 * 4096) / 2**30, rel=0.05)
