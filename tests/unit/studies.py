"""A small valid study for tests of the planner, and what expands a changed copy of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from models.gpt import Gpt
from planning.plan import Study
from planning.studies import expand_study
from settings.config import check_config
from settings.systems import System

ROOT = Path(__file__).resolve().parents[2]
MODELS = {
    name: Gpt(name, num_layers=layers, hidden_size=hidden, num_heads=4, seq_length=8, vocab_size=50304, source="test")
    for name, layers, hidden in (("small", 4, 16), ("large", 8, 32))
}
HARDWARE = {"V100": {"driver_names": ["Tesla V100"]}, "A100": {"driver_names": []}}


def cpu_system(**changes: Any) -> System:
    return System(**{"name": "here", "device": "cpu", "devices": (), "gpus_per_node": 4, "max_gpus": 4, **changes})


def study_config(**changes: Any) -> dict[str, Any]:
    """A study file's content: two frameworks, one model on 1 and 2 processes. A change to None removes the key."""
    config = {
        "title": "test",
        "paper": "axonn",
        "tables": ["strong_scaling"],
        "frameworks": {"torch_ddp": None, "torch_tensor": {"layouts": [{"tensor_parallel": "all"}]}},
        "global_batch_size": 8,
        "comparisons": {"main": {"scaling": "strong", "cross": {"models": ["small"], "num_gpus": [1, 2]}}},
        **changes,
    }
    return {key: value for key, value in config.items() if value is not None}


def expand(config: dict[str, Any], system: System | None = None, models: Any = None) -> Study:
    checked = check_config(config, "study", ROOT, "study.yaml")
    return expand_study("study", "study.yaml", checked, system or cpu_system(), models or MODELS, HARDWARE, ROOT)


def comparison(scaling: str, points: list[tuple[str, int]], **changes: Any) -> dict[str, Any]:
    listed = [{"model": model, "num_gpus": num_gpus} for model, num_gpus in points]
    return {"main": {"scaling": scaling, "points": listed, **changes}}


def refused(config: dict[str, Any], system: System | None = None) -> str:
    """Expand a study that is to be refused, and return with what message."""
    with pytest.raises(ConfigError) as caught:
        expand(config, system)
    return str(caught.value)
