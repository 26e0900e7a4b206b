"""Studies and records made up for tests of everything behind the record; every record satisfies the record's schema."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import yaml

from contracts.cell import Layout
from contracts.outcomes import Outcome
from contracts.placement import ranks_by_node
from corpus.sources import Corpus
from metrics.rows import measurement_rows
from models.gpt import Gpt
from planning.plan import Comparison, PlannedCell, Study
from reporting.study_data import StudyData, study_data
from settings.systems import System
from workloads.training.training_cell import TrainingCell

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Corpus(name="bundled", source="bundled", revision="1", splits=("train",))
TINY = Gpt("tiny", num_layers=2, hidden_size=64, num_heads=2, seq_length=32, vocab_size=512, source="made up")
SMALL = Gpt("small", num_layers=4, hidden_size=64, num_heads=2, seq_length=32, vocab_size=512, source="made up")
PAPER_12B = Gpt(
    "axonn-12b", num_layers=48, hidden_size=4512, num_heads=24, seq_length=512, vocab_size=51200, source="DESIGN.md"
)
HARDWARE = {
    "V100": {"peak_half_precision_flops_per_s": 125e12, "driver_names": ["Tesla V100-SXM2-16GB"], "source": "paper"},
    "A100": {
        "peak_half_precision_flops_per_s": 312e12,
        "driver_names": ["NVIDIA A100-SXM4-40GB"],
        "source": "data sheet",
    },
}
LOSSES = [6.25, 6.0, 5.75, 5.5, 5.25, 5.0, 4.75, 4.5, 4.25, 4.0, 3.75]


@dataclass(frozen=True)
class OtherArchitecture:
    """The double of an architecture that the project does not know: a GPT's fields, and no formula for its FLOPs."""

    like: Gpt
    architecture: str = "other"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.like, name)

    def shape(self) -> dict[str, Any]:
        return self.like.shape() | {"architecture": self.architecture}

    def model_flops_per_step(self, global_batch_size: int) -> None:
        return None

    def recomputing_flops_per_step(self, global_batch_size: int) -> None:
        return None


def make_cell(framework: str = "torch_ddp", num_gpus: int = 1, model: Gpt = TINY, **changes: Any) -> TrainingCell:
    """A cell that is all data parallel on a CPU unless `changes` (fields of TrainingCell) say otherwise."""
    fields: dict[str, Any] = {
        "framework": framework,
        "adaptor_version": 1,
        "loop_version": 1,
        "environment": {"name": "torch"},
        "model": model,
        "num_gpus": num_gpus,
        "layout": Layout(data_parallel=num_gpus),
        "global_batch_size": 8,
        "precision": "fp32",
        "activation_checkpointing": "none",
        "corpus": {"source": "bundled"},
        "seed": 1234,
        "learning_rate": 1e-3,
        "adam_epsilon": 1e-8,
        "device": "cpu",
        "gpus_per_node": 8,
    }
    return TrainingCell(**(fields | changes))


def trained_cell(
    data: int = 1,
    tensor: int = 1,
    pipeline: int = 1,
    micro_batch: int = 2,
    *,
    framework: str,
    model: Gpt,
    checkpointing: str = "none",
    precision: str = "fp32",
    device: str = "cpu",
    stage_layers: tuple[int, ...] = (),
    **options: Any,
) -> TrainingCell:
    """A cell for comparing losses, of these degrees; `options` are the framework's own."""
    return make_cell(
        framework,
        data * tensor * pipeline,
        model,
        layout=Layout(data, tensor, pipeline, micro_batch, options, stage_layers=stage_layers),
        precision=precision,
        activation_checkpointing=checkpointing,
        # As in the study `parity`: losses must move, and feel the size of the gradients.
        learning_rate=0.01,
        adam_epsilon=1e-3,
        device=device,
    )


def make_record(
    cell: TrainingCell,
    repeat: int = 1,
    batch_times_s: Sequence[float] | float = 1.0,
    *,
    warmup_s: float = 50.0,
    losses: Sequence[float | str] = LOSSES,
    status: str = "ok",
    reason: str = "",
    device_name: str = "Test CPU",
    system: str = "local",
    check: bool = True,
    **changes: Any,
) -> dict[str, Any]:
    """The record of a cell whose ranks all took `batch_times_s` (ten, or one for all) after a warm-up of `warmup_s`.

    Batches follow one another without a gap and without waiting for input: a batch ends at the stamp at which the next
    one starts. `changes` replace top-level keys.
    """
    times = [warmup_s, *(batch_times_s if isinstance(batch_times_s, Sequence) else [batch_times_s] * 10)]
    stamps = [sum(times[:i]) for i in range(12)]
    nodes = ranks_by_node(cell.num_gpus, cell.num_nodes)
    places = [(f"host{node}", rank - on_node.start) for node, on_node in enumerate(nodes) for rank in on_node]
    record = {
        "record_version": 1,
        "cell_id": cell.cell_id,
        "repeat": repeat,
        "framework": cell.framework,
        "model_name": cell.model.name,
        "identity": cell.identity(),
        "status": status,
        "reason": reason,
        "started_at": "2026-11-29T12:00:00+00:00",
        "finished_at": "2026-11-29T12:05:00+00:00",
        "command": ["launch.py"],
        "git_commit": "0" * 40,
        "git_dirty": False,
        "code": {"scripts/workloads/training/loop.py": "0" * 64},
        "launch": {
            "system": system,
            "hosts": [f"host{node}" for node in range(cell.num_nodes)],
            "num_nodes": cell.num_nodes,
            "node_shared": False,
            "cpu_cores": 8,
            "threads_per_process": 1,
            "environment": {"OMP_NUM_THREADS": "1"},
            "memory_limit_gib": None,
            "wall_s": stamps[-1] + 20.0,
            "others_cpu_s": 0.5,
            "job_id": None,
        },
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "tokens": {"split": "train", "sha256": "0" * 64, "num_tokens": 100000},
        "settings": {"initial_weights": "shared", "tf32": None, "loss_scale": None},
        "ranks": [
            {
                "rank": rank,
                "local_rank": places[rank][1],
                "host": places[rank][0],
                "device_name": device_name,
                "data_rank": rank % cell.layout.data_parallel,
                "data_size": cell.layout.data_parallel,
                "batch_start_s": [1000.0 * rank + stamp for stamp in stamps[:-1]],
                "batch_end_s": [1000.0 * rank + stamp for stamp in stamps[1:]],
                "input_time_s": [0.0] * 11,
                "losses": list(losses),
                "peak_memory_bytes": 2**30,
                "matmul_size": 1000 if cell.device == "cpu" else None,
                "matmul_seconds": [0.02, 0.01, 0.04] if cell.device == "cpu" else [],
                "clock": {"monotonic_s": 1000.0 * rank + stamps[-1], "unix_s": 1.8e9},
            }
            for rank in range(cell.num_gpus)
        ],
    } | changes
    if check:
        record_schema().validate(record)
    return record


@cache
def record_schema() -> jsonschema.Draft202012Validator:
    """The validator of workflow/schemas/record.schema.yaml."""
    text = (ROOT / "workflow" / "schemas" / "record.schema.yaml").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(yaml.safe_load(text))


def make_comparison(
    cells: Sequence[PlannedCell], name: str = "main", scaling: str = "strong", baseline: str = "smallest_common"
):
    """A comparison; the cells are renamed to belong to it."""
    return Comparison(name, scaling, baseline, tuple(PlannedCell(name, p.cell, p.repeat, p.obstacle) for p in cells))


def make_study(comparisons: Sequence[Comparison], name: str = "demo", device: str = "cpu") -> Study:
    """A study of these comparisons on a system named local."""
    cells = [planned.cell for comparison in comparisons for planned in comparison.cells]
    return Study(
        name=name,
        title="A study for tests",
        system=System(name="local", device=device, devices=(), gpus_per_node=8, max_gpus=8),
        corpus=CORPUS,
        corpus_setting="bundled",
        paper="axonn",
        tables=("weak_scaling",),
        figures=(),
        reference=None,
        frameworks=tuple(dict.fromkeys(cell.framework for cell in cells)),
        models=tuple({cell.model.name: cell.model for cell in cells}.values()),
        comparisons=tuple(comparisons),
    )


def ok(record: dict[str, Any], code_changed: bool = False) -> Outcome:
    """The outcome of a record, with its own status."""
    return Outcome(record["status"], record["reason"], record=record, code_changed=code_changed)


def planned(cell: TrainingCell, repeat: int = 1, **changes: Any) -> PlannedCell:
    """One repeat of a cell."""
    return PlannedCell("main", cell, repeat, **changes)


def measured_study(
    times: dict[tuple[str, int], float | Sequence[float]],
    scaling: str = "strong",
    baseline: str = "smallest_common",
    **cell: Any,
) -> tuple[Study, dict[tuple[str, int], Outcome]]:
    """A study of one comparison from {(framework, GPUs): batch time, or one for each repeat}, all of them ok."""
    cells, outcomes = [], {}
    for (framework, num_gpus), repeats in times.items():
        one = make_cell(framework, num_gpus, **copy.copy(cell))
        for repeat, seconds in enumerate(repeats if isinstance(repeats, Sequence) else [repeats], start=1):
            cells.append(planned(one, repeat))
            outcomes[cells[-1].key] = ok(make_record(one, repeat, seconds))
    return make_study([make_comparison(cells, scaling=scaling, baseline=baseline)]), outcomes


def measured_cells(
    cells: Sequence[TrainingCell],
    times: Sequence[float | None] | float = 1.0,
    scaling: str = "strong",
    device: str = "cpu",
    **record: Any,
) -> tuple[Study, dict[tuple[str, int], Outcome]]:
    """A study of one comparison of these cells, each ok in its batch time of `times` (one for all; None: it never ran).

    `record` are further arguments of `make_record`, the same for every cell.
    """
    seconds = times if isinstance(times, Sequence) else [times] * len(cells)
    plan = [planned(cell) for cell in cells]
    outcomes = {
        one.key: ok(make_record(one.cell, 1, s, **record))
        for one, s in zip(plan, seconds, strict=True)
        if s is not None
    }
    return make_study([make_comparison(plan, scaling=scaling)], device=device), outcomes


def data_of(study: Study, outcomes: dict[tuple[str, int], Outcome], reference: pd.DataFrame | None = None) -> StudyData:
    """What tables and figures are made from, without the way through measurements.csv."""
    return study_data(measurement_rows(study, outcomes, HARDWARE), reference)
