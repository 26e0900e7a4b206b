"""`threads_per_process` of a system: resolved when the file is read, part of a CPU cell's id, and of no other's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import settings.systems
from contracts.errors import ConfigError
from planning.plan_lines import missing_lines
from planning.studies import load_models
from reporting.status_table import summary
from settings.config import check_config
from settings.systems import System, system_from_config
from studies import ROOT, cpu_system, expand, study_config
from workloads.training.training_cell import TrainingCell, cell_from_identity

# The demo as it was when its records were made: ids of cells that people have paid for, which may never change.
ENVIRONMENT = {"name": "torch", "requirements": ["numpy==2.4.6", "torch==2.13.0"]}
SHARED_CPU_IDS = {
    ("torch_ddp", "demo-7m", 1): "832c1b746f97",
    ("torch_ddp", "demo-14m", 1): "a9acece9e0a9",
    ("torch_ddp", "demo-14m", 2): "b0d552758467",
    ("torch_fsdp", "demo-7m", 1): "b3194a48e205",
    ("torch_fsdp", "demo-14m", 1): "34b0fea2e73d",
    ("torch_fsdp", "demo-14m", 2): "88850026f0f9",
    ("torch_tensor", "demo-7m", 1): "5521265f5541",
    ("torch_tensor", "demo-14m", 1): "1bd91d15aa02",
    ("torch_tensor", "demo-14m", 2): "0233ae6d6878",
    ("torch_pipeline", "demo-7m", 1): "ee28e86adb55",
    ("torch_pipeline", "demo-14m", 1): "c6b8c89c4308",
    ("torch_pipeline", "demo-14m", 2): "c6351e703a4f",
}
GPU_IDS = {
    ("torch_ddp", "demo-7m", 1): "8f27fae7992b",
    ("torch_ddp", "demo-14m", 1): "83e1b55105f9",
    ("torch_ddp", "demo-14m", 2): "eab72a4e531f",
    ("torch_fsdp", "demo-7m", 1): "ad63947a01a7",
    ("torch_fsdp", "demo-14m", 1): "d622b69896fb",
    ("torch_fsdp", "demo-14m", 2): "75525590e00f",
    ("torch_tensor", "demo-7m", 1): "967dc8d7f271",
    ("torch_tensor", "demo-14m", 1): "e613a2d9d572",
    ("torch_tensor", "demo-14m", 2): "17c6ba857acf",
    ("torch_pipeline", "demo-7m", 1): "9f0bf0024588",
    ("torch_pipeline", "demo-14m", 1): "48ce11a38c06",
    ("torch_pipeline", "demo-14m", 2): "8a01da2db8d8",
}


def demo_ids(system: System) -> dict[tuple[str, str, int], str]:
    config = study_config(
        frameworks={
            "torch_ddp": None,
            "torch_fsdp": None,
            "torch_tensor": {"layouts": [{"tensor_parallel": "all"}]},
            "torch_pipeline": {"layouts": [{"pipeline_parallel": "all"}]},
        },
        global_batch_size=4,
        activation_checkpointing="full",
        comparisons={
            "weak_scaling": {
                "scaling": "weak_model",
                "points": [{"model": "demo-7m", "num_gpus": 1}, {"model": "demo-14m", "num_gpus": 2}],
            },
            "strong_scaling": {"scaling": "strong", "cross": {"models": ["demo-14m"], "num_gpus": [1, 2]}},
        },
    )
    cells = (planned.cell for planned in expand(config, system, load_models(ROOT)).runnable())
    return {(cell.framework, cell.model.name, cell.num_gpus): pinned(cell).cell_id for cell in cells}


def pinned(cell: TrainingCell) -> TrainingCell:
    """Return the cell with the requirements of then: a new version of torch gives other cells, and rightly."""
    return replace(cell, environment=ENVIRONMENT)


def system_of(config: dict[str, Any], found: tuple[str, ...] = ()) -> System:
    return system_from_config("here", check_config(config, "system", ROOT, "system.yaml"), found)


def test_cells_of_a_cpu_keep_their_ids_under_shared() -> None:
    assert demo_ids(system_of({"device": "cpu", "threads_per_process": "shared"})) == SHARED_CPU_IDS


def test_cells_of_gpus_keep_their_ids() -> None:
    cuda = {"device": "cuda", "devices": ["V100"], "gpus_per_node": 6, "num_nodes": 64, "slurm": {}}
    assert demo_ids(system_of(cuda)) == GPU_IDS
    assert demo_ids(system_of({**cuda, "threads_per_process": "shared"})) == GPU_IDS


def test_a_number_of_threads_makes_other_cells() -> None:
    ids = [demo_ids(cpu_system(threads_per_process=threads)) for threads in (None, 1, 2)]
    assert all(len({of[key] for of in ids}) == 3 for key in SHARED_CPU_IDS)


def test_the_number_of_threads_comes_back_from_the_identity() -> None:
    cell = expand(study_config(), cpu_system(threads_per_process=3)).planned[0].cell
    assert cell.identity()["threads_per_process"] == 3
    assert cell_from_identity(cell.identity(), cell.model.name).threads_per_process == 3
    shared = expand(study_config(), cpu_system()).planned[0].cell
    assert "threads_per_process" not in shared.identity()
    assert cell_from_identity(shared.identity()).threads_per_process is None


@pytest.mark.parametrize(
    ("config", "cores", "threads"),
    [
        ({}, 8, 2),  # 4 processes by default
        ({"cpu_processes": 2}, 2, 1),
        ({"cpu_processes": 3}, 8, 2),
        ({"cpu_processes": 4}, 2, 1),  # at least one
        ({"gpus_per_node": 2, "cpu_processes": 4}, 8, 4),  # gpus_per_node is the number of processes where it is given
        ({"threads_per_process": "equal", "cpu_processes": 2}, 8, 4),
        ({"threads_per_process": 3}, 2, 3),
        ({"threads_per_process": "shared"}, 8, None),
        ({"gpus_per_node": 4, "slurm": {"cpus_per_gpu": 5}}, 64, 5),
        ({"gpus_per_node": 4, "slurm": {}}, 64, 1),
        ({"gpus_per_node": 4, "slurm": {"cpus_per_gpu": 5}, "threads_per_process": "shared"}, 64, None),
    ],
)
def test_what_the_key_comes_to_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], cores: int, threads: int | None
) -> None:
    monkeypatch.setattr(settings.systems, "available_cores", lambda: cores)
    assert system_of({"device": "cpu", **config}).threads_per_process == threads


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"cpu_processes": 3}, "threads of a process: 2 (8 cores of this call / 3 cpu_processes)"),
        ({"gpus_per_node": 2}, "threads of a process: 4 (8 cores of this call / 2 gpus_per_node)"),
        ({"gpus_per_node": 4, "slurm": {"cpus_per_gpu": 5}}, "threads of a process: 5 (slurm.cpus_per_gpu)"),
        ({"threads_per_process": 3}, ""),
        ({"threads_per_process": "shared"}, ""),
    ],
)
def test_a_plan_and_a_status_say_where_the_number_is_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    """With other cores all cells are other ones, and nothing else would show why they are all missing."""
    monkeypatch.setattr(settings.systems, "available_cores", lambda: 8)
    study = expand(study_config(), system_of({"device": "cpu", **config}))
    heading, told = next(missing_lines(study, tmp_path)), summary(study, [])
    assert (words in heading and words in told) if words else not any("threads" in text for text in (heading, told))


def test_gpus_have_no_number_of_threads() -> None:
    assert system_of({"device": "auto", "threads_per_process": 3}, ("V100",)).threads_per_process is None
    assert system_of({"device": "auto", "threads_per_process": 3}).threads_per_process == 3
    cuda = {"device": "cuda", "devices": ["V100"], "gpus_per_node": 6, "threads_per_process": 3}
    with pytest.raises(ValueError, match="threads_per_process is for CPU processes"):
        system_of(cuda)


@pytest.mark.parametrize("value", [0, -1, 1.5, "all", "Equal", True, None, 10**9])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"system\.yaml: threads_per_process"):
        check_config({"device": "cpu", "threads_per_process": value}, "system", ROOT, "system.yaml")
