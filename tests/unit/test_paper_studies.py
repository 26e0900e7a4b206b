"""The papers' studies on the papers' machine: what fits, in what time it ends, and under which ids records are kept."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from contracts.cell import Layout, identity_hash
from planning.adaptors import load_adaptor
from planning.memory_estimate import estimate_for, gpu_memory_gib
from planning.plan import Study
from planning.studies import load_hardware, load_study
from studies import ROOT
from workloads.training.training_cell import TrainingCell

STUDIES = ("axonn_weak_scaling", "axonn_strong_scaling")
MEMORY_GIB = 16
BATCHES = 11
# No layout of these is predicted to fit 16 GB. AxoNN keeps the embedding whole on every tensor and depth rank, and its
# pipelines cannot cut layers. FSDP gathers whole layers of a billion parameters. Torch's pipeline has buffers for all
# micro-batches of a step, so that more stages need more of them, and fewer stages more for their layers' states.
WITHOUT_A_FIT = {
    ("axonn", "axonn-100b"),
    ("torch_fsdp", "axonn-100b"),
    ("torch_pipeline", "axonn-12b"),
    ("torch_pipeline", "axonn-24b"),
    ("torch_pipeline", "axonn-50b"),
    ("torch_pipeline", "axonn-100b"),
}


@cache
def study_of(name: str) -> Study:
    study = load_study(name, "example-summit-like", ROOT)
    assert gpu_memory_gib(study.system, load_hardware(ROOT)) == MEMORY_GIB
    return study


def fits(cell: TrainingCell) -> bool:
    estimate = estimate_for(load_adaptor(cell.framework), cell)
    assert estimate is not None
    return estimate.fits(MEMORY_GIB)


def by_point(study: Study) -> dict[tuple[str, str, int], list[TrainingCell]]:
    """Every framework's cells at each point."""
    points: dict[tuple[str, str, int], list[TrainingCell]] = {}
    for planned in study.planned:
        cell = planned.cell
        assert planned.obstacle is None, f"{cell.label()}: {planned.obstacle}"
        points.setdefault((cell.framework, cell.model.name, cell.num_gpus), []).append(cell)
    return points


@pytest.mark.parametrize("name", STUDIES)
def test_every_framework_of_the_papers_studies_has_a_layout_that_fits(name: str) -> None:
    points = by_point(study_of(name))
    without = {(framework, model) for (framework, model, _), cells in points.items() if not any(map(fits, cells))}
    models = {model.name for model in study_of(name).models}
    assert without == {(framework, model) for framework, model in WITHOUT_A_FIT if model in models}


# No layout of these with micro-batches of 4 is predicted to fit 16 GB, although one with smaller ones is.
NO_ROOM_FOR_FOUR = {("axonn", "axonn-50b")}


@pytest.mark.parametrize("name", STUDIES)
def test_wherever_one_fits_there_is_a_candidate_with_larger_micro_batches(name: str) -> None:
    for (framework, model, num_gpus), cells in by_point(study_of(name)).items():
        if (framework, model) in WITHOUT_A_FIT | NO_ROOM_FOR_FOUR:
            continue
        sizes = [cell.layout.micro_batch_size for cell in cells if fits(cell)]
        assert max(sizes) >= 4, f"{framework}, {model} on {num_gpus} GPUs"


def all_layouts(cell: TrainingCell, micro_batch_size: int) -> Iterator[TrainingCell]:
    """The cell in every layout that its framework can run, up to 8 tensor ranks."""
    adaptor = load_adaptor(cell.framework)
    can, options = adaptor.FRAMEWORK.parallelism, adaptor.FRAMEWORK.options
    for tensor in (1, 2, 4, 8) if "tensor" in can else (1,):
        for stages in range(1, cell.model.num_layers + 1) if "pipeline" in can else (1,):
            data, left = divmod(cell.num_gpus, tensor * stages)
            if left or cell.model.num_layers % stages or cell.model.num_heads % tensor:
                continue
            for values in product(*options.values()):
                layout = Layout(data, tensor, stages, micro_batch_size, dict(zip(options, values, strict=True)))
                changed = replace(cell, layout=layout)
                if not cell.global_batch_size % (data * micro_batch_size) and not adaptor.unsupported_reason(changed):
                    yield changed


@pytest.mark.parametrize("name", STUDIES)
def test_what_has_no_candidate_has_no_layout(name: str) -> None:
    for (framework, model, _), cells in by_point(study_of(name)).items():
        for points, micro_batch_size in ((WITHOUT_A_FIT, 1), (NO_ROOM_FOR_FOUR, 4)):
            if (framework, model) in points:
                layouts = list(all_layouts(cells[0], micro_batch_size))
                assert layouts
                assert [cell.label() for cell in layouts if fits(cell)] == []


@pytest.mark.parametrize("name", STUDIES)
def test_sharded_parameters_do_not_travel_with_micro_batches_of_one(name: str) -> None:
    """Where a larger micro-batch fits, as it moves a fourth at most."""
    for planned in study_of(name).planned:
        cell, options = planned.cell, planned.cell.layout.options
        sharded = options.get("zero_stage") == 3 or options.get("accumulate") == "shards" or options.get("depth", 1) > 1
        if sharded and cell.layout.micro_batch_size == 1:
            assert not fits(replace(cell, layout=replace(cell.layout, micro_batch_size=2))), cell.label()


@pytest.mark.parametrize("name", STUDIES)
def test_a_cell_at_a_tenth_of_peak_ends_within_its_limit(name: str) -> None:
    """11 batches and the longest start that the system allows, on V100s; and no limit is twice that."""
    study = study_of(name)
    peak = load_hardware(ROOT)["V100"]["peak_half_precision_flops_per_s"]
    assert study.system.devices == ("V100",)
    for cell in {planned.cell.cell_id: planned.cell for planned in study.planned}.values():
        batch_s = cell.model.recomputing_flops_per_step(cell.global_batch_size) / (0.1 * peak * cell.num_gpus)
        needed_minutes = (BATCHES * batch_s + study.system.startup_timeout_s) / 60
        assert needed_minutes <= study.limit_minutes(cell) < 1.2 * needed_minutes, cell.label()


@pytest.mark.parametrize("name", STUDIES)
def test_cells_of_before_keep_their_ids(name: str) -> None:
    """tests/data/axonn_cell_ids.csv has the layouts that stay, as they were before limits and layouts changed.

    Its ids are made without the environment, as a new version of a package gives new ids by design.
    """
    with (ROOT / "tests" / "data" / "axonn_cell_ids.csv").open() as file:
        before = {row["label"]: row["id"] for row in csv.DictReader(file) if row["study"] == name}
    today = {
        re.sub(r", batch \d+", "", planned.cell.label()): identity_hash(planned.cell.identity() | {"environment": {}})
        for planned in study_of(name).planned
    }
    assert len(before) >= 20
    assert {label: today.get(label) for label in before} == before
