"""Study files -> cells: what they expand to, what will not run, and the system that they are planned for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from planning.plan import index_cells
from planning.plan_lines import missing_lines, plan_lines
from settings.config import check_config
from settings.systems import system_from_config
from studies import MODELS, ROOT, comparison, expand, study_config


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
        f"    torch_ddp, small, {n} processes, batch 16, data {n}, micro-batch 1, {n // 4} nodes, not started: "
        f"needs {n} processes, this system (here) has 4"
        for n in (8, 16)
    ]


def test_the_plan_names_what_will_not_run_and_what_will(tmp_path: Path) -> None:
    points = comparison("strong", [("small", 1), ("small", 2), ("small", 4)])
    layouts = [{"tensor_parallel": "all"}]
    study = expand(study_config(frameworks={"torch_ddp": {"layouts": layouts}}, comparisons=points, repeats=2))
    assert plan_lines(study) == [
        f"{study.name}: torch_ddp, small, {n} processes, batch 8, tensor {n}, micro-batch 1: unsupported: "
        "torch_ddp has no tensor parallelism (it has data)"
        for n in (2, 4)
    ]
    assert list(missing_lines(study, tmp_path)) == [
        f"{study.name}: 2 of 2 cells to measure on here",
        "    torch_ddp, small, 1 process, batch 8, data 1, micro-batch 1, 2 repeats, at most 30 minutes, "
        "about 36 MiB a process (parameters 6, gradients 12, optimizer 12, activations 0, working set 5)",
    ]


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
