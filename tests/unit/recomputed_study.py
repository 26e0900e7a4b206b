"""Studies whose records have other times for every rank and batch, written as files: what recomputation is tried on."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.cell import Layout
from factories import HARDWARE, PAPER_12B, SMALL, TINY, make_cell, make_comparison, make_record, make_study, planned
from metrics.columns import write_measurements
from metrics.rows import measurement_rows
from models.gpt import Gpt
from planning.plan import Comparison, Obstacle, PlannedCell, Study, record_path
from recomputation import A100, V100, Key, Numbers, read_records
from recomputed_tables import Planned
from records.reader import read_outcomes
from workloads.training.training_cell import TrainingCell

PAPER_24B = dataclasses.replace(PAPER_12B, name="axonn-24b", hidden_size=6336, num_heads=36)
DEEP = dataclasses.replace(SMALL, name="deep", num_layers=8)
OOM, NAN, DRIFTS, SPIKES, PAUSES = "oom", "nan", "drifts", "spikes", "pauses"

# How a repeat ended: with a batch time of about so many seconds (one that drifts, spikes, or pauses between batches
# where it is named), out of memory, with losses that are no numbers, or not at all.
Ending = float | tuple[str, float] | str | None


@dataclass(frozen=True)
class Measured:
    """A study on a system: its files, the plan in plain words, and its records as they were read back."""

    folder: Path
    plan: tuple[Planned, ...]
    records: dict[Key, Numbers]


def uneven_record(cell: TrainingCell, repeat: int, ending: Ending, system: str, device_name: str) -> Numbers:
    """Return a record whose ranks took different times in every batch and waited for input, each on its own clock.

    Ranks ask for a batch's input when the slowest has ended the batch before; each waits, and works, for its own time.
    """
    if isinstance(ending, str):
        losses = {"losses": ["nan"] * 11} if ending == NAN else {}
        record = make_record(
            cell, repeat, 1.0, status=ending, reason="as planned", system=system, check=False, **losses
        )
        return record | ({"ranks": []} if ending == OOM else {})
    kind, seconds = ending if isinstance(ending, tuple) else ("", ending)
    record = make_record(cell, repeat, 1.0, system=system, device_name=device_name, check=False)
    now, share = 3.0 + 0.1 * repeat, cell.layout.data_parallel
    for rank in record["ranks"]:
        number = rank["rank"]
        rank |= {"batch_start_s": [], "batch_end_s": [], "input_time_s": [], "losses": []}
        rank["peak_memory_bytes"] = 2**30 + 12_345 * (number * 7 % 5)
        if cell.device == "cpu":
            best = 0.02 * (1 + 0.01 * ((number + 2 * repeat + cell.num_gpus) % 5))
            rank["matmul_seconds"] = [1.5 * best, best, 1.1 * best]
    for batch in range(11):
        slow = 20 if batch == 0 else 1.4 if kind == DRIFTS and batch > 5 else 30 if kind == SPIKES and batch == 4 else 1
        now += seconds * 0.3 if kind == PAUSES else 0
        ends = []
        for rank in record["ranks"]:
            number = rank["rank"]
            start = 1000.0 * number + now + 0.002 * seconds * ((number + batch) % 4)
            end = start + slow * seconds * (1 + 0.002 * ((3 * number + 5 * batch + 7 * repeat) % 9))
            rank["input_time_s"].append(start - (1000.0 * number + now))
            rank["batch_start_s"].append(start)
            rank["batch_end_s"].append(end)
            holds_loss = number >= cell.num_gpus * (1 - 1 / cell.layout.pipeline_parallel)
            rank["losses"].append(_loss(cell, repeat, number % share, batch) if holds_loss else None)
            ends.append(end - 1000.0 * number)
        now = max(ends)
    for rank in record["ranks"]:
        rank["clock"]["monotonic_s"] = 1000.0 * rank["rank"] + now + 1.0
    record["launch"]["wall_s"] = now + 20.0
    return record


def _loss(cell: TrainingCell, repeat: int, share: int, batch: int) -> float:
    """Return a loss that differs from share to share, and from framework to framework by less or more than 1e-4."""
    wrong = {"torch_plain": 0.0, "torch_tensor": 1e-3}.get(cell.framework, 1e-5 / repeat) * (batch % 4)
    return (6.25 - 0.25 * batch + 0.01 * share * (batch % 3)) * (1 + wrong)


def write_study(root: Path, study: Study, endings: Mapping[Key, Ending], device_name: str) -> Measured:
    """Write the records, and through the project's own reading and metrics measurements.csv."""
    results, system = root / "results", study.system.name
    for one in {p.key: p for p in study.planned}.values():
        ending = endings.get(one.key)
        if ending is not None:
            path = record_path(results, system, one)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(uneven_record(one.cell, one.repeat, ending, system, device_name)), "utf-8")
    folder = results / system / study.name
    write_measurements(measurement_rows(study, read_outcomes(study, results), HARDWARE), folder / "measurements.csv")
    plan = tuple(
        Planned(
            c.name, c.scaling, c.baseline, p.cell.framework, p.cell.model.name, p.cell.num_gpus, *p.key
        )
        for c in study.comparisons
        for p in c.cells
    )  # fmt: skip
    keys = {p.key for p in plan}
    records = {key: record for key, record in read_records(results / system / "cells").items() if key in keys}
    return Measured(folder, plan, records)


@dataclass
class Builder:
    """Gathers the comparisons of a study and how each repeat ended."""

    comparisons: list[Comparison] = dataclasses.field(default_factory=list)
    endings: dict[Key, Ending] = dataclasses.field(default_factory=dict)

    def compare(
        self, name: str, scaling: str, points: Sequence[tuple[Any, ...]], policy: str = "smallest_common", **cell
    ):
        """Add a comparison of points (framework, model, Layout, endings of the repeats); `cell` are fields of it."""
        cells: list[PlannedCell] = []
        for framework, model, layout, endings in points:
            settings = dict(cell)
            if scaling == "weak_batch":
                settings["global_batch_size"] = 4 * layout.num_gpus
            one = make_cell(framework, layout.num_gpus, model, layout=layout, **settings)
            for repeat, ending in enumerate(endings, start=1):
                cells.append(planned(one, repeat))
                self.endings[cells[-1].key] = ending
        self.comparisons.append(make_comparison(cells, name, scaling, policy))

    def study(self, name: str, system: str = "local", device: str = "cpu") -> Study:
        study = make_study(self.comparisons, name, device)
        return dataclasses.replace(study, system=dataclasses.replace(study.system, name=system))


def layout(data: int = 1, tensor: int = 1, pipeline: int = 1, micro_batch: int = 1) -> Layout:
    return Layout(data, tensor, pipeline, micro_batch)


STRONG = [
    ("torch_ddp", TINY, layout(1, micro_batch=2), [1.0, 1.02, 0.97]),
    ("torch_ddp", TINY, layout(1, micro_batch=4), [1.1, 1.09, 1.12]),
    ("torch_ddp", TINY, layout(2, micro_batch=2), [0.56, (SPIKES, 0.57), 0.55]),
    ("torch_ddp", TINY, layout(2, micro_batch=4), [0.52, 0.53, 0.54]),
    ("torch_ddp", TINY, layout(4, micro_batch=1), [0.3, 0.31, 0.33]),
    # Faster in the mean, and its repeats do not agree.
    ("torch_ddp", TINY, layout(4, micro_batch=2), [0.2, 0.21, 0.31]),
    ("torch_fsdp", TINY, layout(1), [1.2, 1.21, 1.19]),
    ("torch_fsdp", TINY, layout(2), [(DRIFTS, 0.6), 0.71, 0.69]),
    ("torch_fsdp", TINY, layout(4), [OOM, OOM, OOM]),
    ("torch_tensor", TINY, layout(tensor=1), [0.99, 0.95, 1.0]),
    ("torch_tensor", TINY, layout(tensor=2), [0.55, 0.56, None]),
    ("torch_tensor", TINY, layout(tensor=4), [(PAUSES, 0.35), None, None]),
    ("torch_pipeline", TINY, layout(pipeline=1), [1.3, 1.31, 1.29]),
    ("torch_pipeline", TINY, layout(pipeline=2), [0.8, 1.3, 0.82]),
    ("torch_pipeline", TINY, layout(pipeline=4), [OOM, 0.4, 0.41]),
    ("horovod", TINY, layout(1), [1.4, 1.45, 1.42]),
    ("horovod", TINY, layout(2), [None, None, None]),
    ("horovod", TINY, layout(4), [NAN, 0.5, 0.51]),
]
OWN = [
    *STRONG[:3],
    ("deepspeed", TINY, layout(2), [0.6, 0.61, 0.62]),
    ("deepspeed", TINY, layout(4), [0.32, 0.34, 0.33]),
]
WEAK_BATCH = [
    ("torch_ddp", TINY, layout(1), [0.5, 0.51, 0.52]),
    ("torch_ddp", TINY, layout(2), [0.55, 0.57, 0.56]),
    ("torch_ddp", TINY, layout(4), [0.62, 0.61, 0.63]),
    ("torch_tensor", TINY, layout(1, 1), [0.53, 0.52, 0.54]),
    ("torch_tensor", TINY, layout(1, 2), [0.59, 0.58, 0.57]),
    ("torch_tensor", TINY, layout(2, 2), [0.65, 0.63, 0.64]),
]
WEAK_MODEL = [
    ("torch_ddp", TINY, layout(1), [0.7, 0.72, 0.71]),
    ("torch_ddp", SMALL, layout(2), [0.75, 0.76, 0.77]),
    ("torch_ddp", DEEP, layout(4), [0.8, 0.83, 0.81]),
    ("torch_fsdp", SMALL, layout(2), [0.74, 0.75, 0.78]),
    ("torch_fsdp", DEEP, layout(4), [0.79, 0.8]),
]
PARITY = [
    ("torch_plain", TINY, layout(), [1.0, 1.01]),
    ("torch_tensor", TINY, layout(2, 2), [0.5]),
    ("torch_pipeline", TINY, layout(2, pipeline=2), [0.5, 0.52]),
]
# About half of the peak of 125 Tflop/s, which is 271 s for a batch of 16384 sequences of 512 tokens.
PAPER_WEAK = [
    ("axonn", PAPER_12B, layout(16, 3), [250.0, 252.0, 249.0]),
    ("megatron_lm", PAPER_12B, layout(16, 3), [300.0, 301.0, 305.0]),
    ("deepspeed", PAPER_12B, layout(16, 3), [290.0, 296.0, 288.0]),
    # The fastest other, which the paper did not run.
    ("torch_fsdp", PAPER_12B, layout(48), [255.0, 254.0, 251.5]),
    ("axonn", PAPER_24B, layout(32, 3), [260.0, 263.0]),
    ("megatron_lm", PAPER_24B, layout(32, 3), [330.0]),
    ("deepspeed", PAPER_24B, layout(32, 3), [OOM]),
]
PAPER_STRONG = [
    *PAPER_WEAK[:2],
    ("axonn", PAPER_12B, layout(32, 3), [131.0, 129.0]),
    ("megatron_lm", PAPER_12B, layout(32, 3), [170.0, 160.0]),
]
HALF = {"precision": "fp16", "activation_checkpointing": "full", "global_batch_size": 16384, "device": "cuda"}


def cpu_study(root: Path, system: str, slower: float = 1.0, frameworks: Sequence[str] = ()) -> Measured:
    """Write the study `cpu`: every kind of comparison; `slower` times as slow, of these frameworks, all if none."""

    def points(chosen: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        def scaled(ending: Ending) -> Ending:
            return ending * slower if isinstance(ending, float) else ending

        return [
            (name, model, one, [scaled(ending) for ending in endings])
            for name, model, one, endings in chosen
            if not frameworks or name in frameworks
        ]

    builder = Builder()
    builder.compare("strong", "strong", points(STRONG))
    builder.compare("own", "strong", points(OWN), "own_smallest")
    builder.compare("weak batch", "weak_batch", points(WEAK_BATCH), activation_checkpointing="full")
    builder.compare("weak model", "weak_model", points(WEAK_MODEL), activation_checkpointing="selective")
    builder.compare("parity", "none", points(PARITY))
    too_large = PlannedCell(
        "strong", make_cell("horovod", 8), 1, Obstacle("missing", "needs 8 GPUs, this system has 4")
    )
    strong = builder.comparisons[0]
    builder.comparisons[0] = dataclasses.replace(strong, cells=(*strong.cells, too_large))
    return write_study(root, builder.study("cpu", system), builder.endings, "Test CPU")


def paper_study(root: Path) -> Measured:
    """Write the study `paper` on V100s: the models of the paper, and one framework that it did not run."""
    builder = Builder()
    builder.compare("weak", "weak_model", PAPER_WEAK, **HALF)
    builder.compare("strong", "strong", PAPER_STRONG, **HALF)
    return write_study(root, builder.study("paper", "v100", "cuda"), builder.endings, V100)


def paper_study_elsewhere(root: Path, faster: float = 1.9) -> Measured:
    """Write the smaller part of it on A100s."""
    builder = Builder()
    points: list[tuple[str, Gpt, Layout, list[float]]] = [
        (name, model, one, [seconds / faster for seconds in endings[:2]])
        for name, model, one, endings in PAPER_STRONG[:2]
    ]
    builder.compare("strong", "strong", points, **HALF)
    return write_study(root, builder.study("paper", "a100", "cuda"), builder.endings, A100)
