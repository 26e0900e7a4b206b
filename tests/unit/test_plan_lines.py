"""What a call says before anything starts: what cells will take, GPUs that torch cannot use, groups across nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contracts.cell import Layout
from contracts.placement import ranks_by_node
from factories import make_cell
from planning.adaptors import environment_identity
from planning.budget import Budget, Share, budget
from planning.plan import Study, record_path
from planning.plan_lines import missing_lines, plan_lines
from planning.predictions import LOWEST_CAPABILITY, lowest_capability, missing_kernels, straddles_nodes
from planning.studies import load_hardware
from settings.systems import EnvironmentSource, SlurmSite, System
from studies import ROOT, comparison, cpu_system, expand, study_config

LIMIT_MINUTES = 30
POINTS = comparison("strong", [("small", 2), ("small", 4)])


def gpu_system(**changes: Any) -> System:
    return cpu_system(**{"device": "cuda", "devices": ("V100",), "gpus_per_node": 2, "max_gpus": 8, **changes})


def study_on(system: System, **changes: Any) -> Study:
    settings = {"frameworks": {"torch_ddp": None}, "comparisons": POINTS, "time_limit_minutes": LIMIT_MINUTES}
    return expand(study_config(**{**settings, **changes}), system)


def budget_on(system: System, results: Path, **changes: Any) -> Budget:
    return budget(study_on(system, **changes), results, [], load_hardware(ROOT))


# -- what the missing cells will take ----------------------------------------------------------------------------------


def test_gpu_hours_are_gpus_times_the_limit_on_this_machine(tmp_path: Path) -> None:
    found = budget_on(gpu_system(), tmp_path)
    assert (found.submits, found.fitting) == (False, Share(2, (2 + 4) * 0.5))
    assert found.memory_gib is None  # V100s have 16 or 32 GB
    assert found.words() == "2 cells to measure one after another, at most 3 GPU-hours in all (to the time limit)"


def test_slurm_jobs_are_charged_whole_nodes_and_their_overhead(tmp_path: Path) -> None:
    site = SlurmSite(exclusive=True, job_overhead_minutes=30)
    found = budget_on(gpu_system(gpus_per_node=4, slurm=site), tmp_path)
    assert found.fitting == Share(2, 2 * 4 * 1.0)
    assert found.words() == (
        "2 jobs to submit, of at most 1 node each, at most 8 GPU-hours in all (every GPU kept from others, to the time "
        "limit)"
    )


def test_what_does_not_fit_is_counted_apart(tmp_path: Path) -> None:
    roomy, tight = (budget_on(gpu_system(memory_limit_gib=limit), tmp_path) for limit in (64, 1.5))
    assert (roomy.fitting, roomy.unfit, roomy.hopeless) == (Share(2, 3), Share(0, 0), ())
    assert roomy.words() == (
        "2 cells to measure one after another: 2 predicted to fit 64 GiB, at most 3 GPU-hours (to the time limit)"
    )
    assert (tight.fitting, tight.unfit) == (Share(0, 0), Share(2, 3))
    assert tight.words() == (
        "2 cells to measure one after another: 0 predicted to fit 1.5 GiB, at most 0 GPU-hours (to the time limit); "
        "2 predicted NOT to fit, at most 3 GPU-hours more, and started all the same"
    )
    assert tight.hopeless == ("torch_ddp, small, 2 GPUs, batch 8", "torch_ddp, small, 4 GPUs, batch 8")


def test_only_one_of_two_sizes_fits(tmp_path: Path) -> None:
    """Eight micro-batches on two GPUs are added up beside DDP's buckets, one on eight is not."""
    points = comparison("strong", [("small", 2), ("small", 8)])
    found = budget_on(gpu_system(memory_limit_gib=1.5 + 32 / 1024), tmp_path, comparisons=points)
    assert (found.fitting, found.unfit) == (Share(1, 4), Share(1, 1))
    assert [(size.num_gpus, size.fitting, size.unfit) for size in found.sizes] == [
        (2, Share(0, 0), Share(1, 1)),
        (8, Share(1, 4), Share(0, 0)),
    ]
    assert found.lines() == [
        "    framework  GPUs  cells  GPU-hours  NOT to fit  GPU-hours",
        "    torch_ddp     2      0          0           1          1",
        "    torch_ddp     8      1          4           0          0",
        "    no candidate is predicted to fit:",
        "        torch_ddp, small, 2 GPUs, batch 8",
    ]


def test_a_point_with_one_candidate_that_fits_is_not_hopeless(tmp_path: Path) -> None:
    """Of two layouts of one point only the one fits that cuts the parameters in two."""
    layouts = [{}, {"tensor_parallel": 2}]
    settings = {
        "frameworks": {"torch_tensor": {"layouts": layouts}},
        "comparisons": comparison("strong", [("small", 2)]),
    }
    study = study_on(gpu_system(memory_limit_gib=1.5 + 28 / 1024), **settings)
    found = budget(study, tmp_path, [], {})
    assert (found.fitting.cells, found.unfit.cells, found.hopeless) == (1, 1, ())
    apart = list(missing_lines(study, tmp_path))
    assert ["NOT to fit" in line for line in apart[1:]] == [False, True]


def test_repeats_count_each_and_records_not_at_all(tmp_path: Path) -> None:
    study = study_on(gpu_system(memory_limit_gib=1.5), repeats=3)
    assert budget(study, tmp_path, [], {}).unfit == Share(6, 9)
    first, second, *_ = study.runnable()
    record = record_path(tmp_path, study.system.name, first)
    record.parent.mkdir(parents=True)
    record.touch()
    in_queue = [record_path(tmp_path, study.system.name, second)]
    found = budget(study, tmp_path, in_queue, {})
    assert found.unfit == Share(4, 7)


def test_processes_on_a_cpu_have_minutes_and_no_gpu_hours(tmp_path: Path) -> None:
    found = budget_on(cpu_system(memory_limit_gib=1.5), tmp_path)
    assert found.fitting.gpu_hours is None
    assert found.words() == "2 cells to measure one after another, at most 60 minutes in all"


def test_a_limit_of_its_own_for_a_number_of_gpus(tmp_path: Path) -> None:
    limits = {"default": 60, "small": 30, "4 GPUs": 90, "16 GPUs": 1}
    study = study_on(gpu_system(), time_limit_minutes=limits)
    assert [study.limit_minutes(planned.cell) for planned in study.runnable()] == [30, 90]
    assert budget(study, tmp_path, [], {}).fitting.gpu_hours == 2 * 0.5 + 4 * 1.5


def test_cells_that_are_too_large_for_the_system_cost_nothing(tmp_path: Path) -> None:
    found = budget_on(gpu_system(max_gpus=2), tmp_path)
    assert found.fitting == Share(1, 1)


# -- tensor groups -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_gpus", [4, 6, 8, 12, 24])
@pytest.mark.parametrize("per_node", [2, 4, 6, 8])
def test_a_group_straddles_nodes_where_its_ranks_are_on_two(num_gpus: int, per_node: int) -> None:
    for tensor in (degree for degree in range(1, num_gpus + 1) if num_gpus % degree == 0):
        layout = Layout(num_gpus // tensor, tensor)
        cell = make_cell("torch_tensor", num_gpus, layout=layout, gpus_per_node=min(num_gpus, per_node))
        node_of = {rank: node for node, ranks in enumerate(ranks_by_node(num_gpus, cell.num_nodes)) for rank in ranks}
        groups = [range(first, first + tensor) for first in range(0, num_gpus, tensor)]
        expected = any(len({node_of[rank] for rank in group}) > 1 for group in groups)
        assert straddles_nodes(cell) == expected, (tensor, num_gpus, per_node)


def test_groups_across_nodes_are_named_with_the_cell(tmp_path: Path) -> None:
    frameworks = {"torch_tensor": {"layouts": [{"tensor_parallel": 4}, {"tensor_parallel": 2}]}}
    points = comparison("strong", [("small", 12)])
    study = study_on(
        gpu_system(gpus_per_node=6, max_gpus=12), frameworks=frameworks, comparisons=points, global_batch_size=24
    )
    across, within = list(missing_lines(study, tmp_path))[1:]
    assert ", 2 nodes, tensor groups of 4 straddle them, at most" in across
    assert ", 2 nodes, at most" in within
    assert budget(study, tmp_path, [], {}).words().endswith("; 1 with tensor groups that straddle nodes")


# -- GPUs that torch has no kernels for --------------------------------------------------------------------------------


def test_the_pinned_torch_is_in_the_table() -> None:
    """A new version goes into the table with its source, or nobody is told any more."""
    (pinned,) = [
        line.partition("==")[2]
        for line in environment_identity("torch", ROOT)["requirements"]
        if line.startswith("torch==")
    ]
    assert lowest_capability(pinned, None) == 7.5


def test_every_nvidia_gpu_has_a_compute_capability() -> None:
    found = {name: entry.get("compute_capability") for name, entry in load_hardware(ROOT).items()}
    # As NVIDIA lists them.
    assert found == {
        "V100": 7.0,
        "V100-PCIe": 7.0,
        "A100": 8.0,
        "H100-SXM": 9.0,
        "H100-PCIe": 9.0,
        "H100-NVL": 9.0,
        "H200": 9.0,
        "B200": 10.0,
        "RTX-4090": 8.9,
        "MI250X": None,
        "MI300X": None,
    }


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ("2.13.0", 7.5),
        ("2.13.0+cu130", 7.5),
        ("2.13.0+cu126", 5.0),
        ("2.13.0+cpu", 7.5),  # on the machine that plans; the cells' own will be the index's
        (None, 7.5),
        ("2.12.1+cu126", 7.5),  # another version than cells are made for
        ("2.13.0+rocm7", None),
    ],
)
def test_where_kernels_start(installed: str | None, expected: float | None) -> None:
    assert lowest_capability("2.13.0", installed) == expected
    assert lowest_capability("1.0.0", installed) is None
    assert list(LOWEST_CAPABILITY) == ["2.13"]


def kernels(installed: str, **system: Any) -> list[str]:
    frameworks = {"torch_ddp": None, "torch_tensor": None, "deepspeed": None}
    study = expand(study_config(frameworks=frameworks), gpu_system())
    study = replace(study, system=gpu_system(**system))
    return missing_kernels(study, load_hardware(ROOT), installed)


def test_gpus_without_kernels_are_told_once() -> None:
    (sentence,) = kernels("2.13.0+cpu", devices=("Tesla V100-SXM2-16GB",))
    assert sentence.startswith(
        "V100 has compute capability 7.0, and torch 2.13.0 as the package index has it starts at 7.5: "
        "with it no cell of torch_ddp, torch_tensor, deepspeed can run."
    )
    assert kernels("2.13.0+cpu", devices=("A100",)) == []
    assert kernels("2.13.0+cpu", devices=("MI250X",)) == []


def test_a_torch_that_is_not_the_indexs_is_left_alone() -> None:
    """The workflow's own may be another build, and a site's Python is its own affair."""
    (sentence,) = kernels("2.13.0+cu126")
    assert "no cell of deepspeed can run" in sentence  # whose environment pip makes from the index
    own = {"axonn_paper": EnvironmentSource("python", python="/opt/python")}
    assert kernels("2.13.0+cu126", environments=own) == []


def test_the_plan_begins_with_it() -> None:
    frameworks = {"torch_ddp": None, "torch_tensor": {"layouts": [{"tensor_parallel": 2, "pipeline_parallel": 1}]}}
    study = study_on(gpu_system(max_gpus=2), frameworks=frameworks)
    first, *others = plan_lines(study, load_hardware(ROOT))
    assert first.startswith("study: V100 has compute capability 7.0")
    assert any("not started" in line for line in others)
    assert not any("compute capability" in line for line in plan_lines(study))


# -- studies that no system is large enough for ------------------------------------------------------------------------


@pytest.mark.parametrize("num_nodes", [2, 10**9])
@pytest.mark.parametrize(
    ("framework", "layout"),
    [("torch_ddp", {}), ("torch_fsdp", {}), ("torch_tensor", {"tensor_parallel": 2}), ("axonn", {}), ("deepspeed", {})],
)
def test_as_many_gpus_as_a_study_may_name_are_planned_at_once(
    framework: str, layout: dict[str, Any], num_nodes: int, tmp_path: Path
) -> None:
    """Whatever looked at every GPU or every node of a plan would never come back from a thousand million."""
    most = 10**9
    study = study_on(
        gpu_system(gpus_per_node=3, max_gpus=3 * num_nodes),
        frameworks={framework: {"layouts": [layout]}},
        global_batch_size=most,
        comparisons=comparison("strong", [("small", most)]),
    )
    hardware = load_hardware(ROOT)
    lines = [*plan_lines(study, hardware), *missing_lines(study, tmp_path, hardware)]
    cost = budget(study, tmp_path, [], hardware)
    lines += [cost.words(), *cost.lines()]
    assert any(f"{most} GPU" in line for line in lines)
    assert max(map(len, lines)) < 400


def test_only_so_many_numbers_of_gpus_are_written_out() -> None:
    some, many = (
        study_on(
            gpu_system(),
            global_batch_size=None,
            batch_size_per_gpu=1,
            comparisons=comparison("none", [("small", 9 + number) for number in range(points)]),
        )
        for points in (3, 300)
    )
    assert "3 cells planned and not started: they need 9, 10, 11 GPUs, this system" in plan_lines(some)[-1]
    assert "300 cells planned and not started: they need from 9 to 308 GPUs, this system" in plan_lines(many)[-1]
