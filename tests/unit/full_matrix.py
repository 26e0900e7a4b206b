"""The paper's full matrix with records made up: every cell of `axonn_*` in config/studies, at 48 to 384 GPUs.

No machine here could measure it, so that times come from a simple model, stated in `batch_time_s`. What does not fit
16 GB by the project's own estimate ended `oom`; some cells and repeats ended otherwise (ENDINGS). The numbers of a cell
depend on its label and repeat alone: no clock, no order and no version of a package changes them.

Tables and figures of all of it: `full_data(name)` for a name of NAMES, or `write_measurements_of(name, folder)` to go
through the file as the workflow does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from contracts.outcomes import Outcome
from factories import LOSSES, ROOT, make_record, ok
from metrics.columns import write_measurements
from metrics.rows import measurement_rows
from planning.adaptors import load_adaptor
from planning.memory_estimate import GIB, estimate_for
from planning.plan import PlannedCell, Study
from planning.studies import expand_study, load_hardware, load_models, load_system
from reporting.reference import read_reference
from reporting.study_data import StudyData, study_data
from settings.config import check_config, read_yaml
from workloads.training.training_cell import TrainingCell

SYSTEM = "example-summit-like"
DEVICE, DEVICE_NAME = "V100", "Tesla V100-SXM2-16GB"
PEAK_FLOPS_PER_S, MEMORY_GIB = 125e12, 16
OTHER_DEVICE_NAME = "NVIDIA A100-SXM4-40GB"
REFERENCE = ROOT / "reference" / "axonn_2021.csv"
WEAK, STRONG = "axonn_weak_scaling", "axonn_strong_scaling"
# The strong-scaling study once more, where no number of GPUs has a result of every framework.
NO_BASELINE = "axonn_strong_scaling_no_baseline"
# And once more, where a layout that is not the fastest ran on another device, so that the set is mixed.
TWO_DEVICES = "axonn_strong_scaling_two_devices"
NAMES = (WEAK, STRONG, NO_BASELINE, TWO_DEVICES)

# Share of the peak that a framework's products reach with micro-batches of 16, of 4 and of 1 sequences.
PEAK_SHARE = {
    "axonn": 0.62,
    "megatron_lm": 0.58,
    "deepspeed": 0.56,
    "torch_fsdp": 0.54,
    "torch_tensor": 0.52,
    "torch_pipeline": 0.5,
}
SHARE_OF_MICRO_BATCH = {16: 1.0, 4: 0.97, 2: 0.94, 1: 0.9}
# What a GPU sends and receives in a second, and how much of that hides behind products.
BYTES_PER_S = 10e9
EXPOSED = 0.35
# How far repeats differ, as a share of the time.
SPREAD = 0.008

CRASH = Outcome(
    "missing", "rank 17 ended with exit status 1: RuntimeError: NCCL error: unhandled system error", "crash"
)
TIME_LIMIT = Outcome("missing", "Slurm ended job 4711 after its time limit of 90 minutes", "time_limit")
ELSEWHERE = "elsewhere"
NEVER_RAN = Outcome("missing", "has not run yet", "never_ran")
NO_MPI = "mpi4py cannot load an MPI library (libmpi.so.12: cannot open shared object file): load the site's module"


@dataclass(frozen=True)
class Rule:
    """How cells of a framework ended otherwise: on one number of GPUs, in all repeats or in one.

    `how` is an outcome without a record, the status of one, or ELSEWHERE for one that is ok on the other device.
    `micro_batch_size` None takes every layout.
    """

    framework: str
    num_gpus: int
    how: Outcome | str
    repeat: int | None = None
    micro_batch_size: int | None = None

    def applies(self, planned: PlannedCell) -> bool:
        cell = planned.cell
        return (
            (self.framework, self.num_gpus) == (cell.framework, cell.num_gpus)
            and self.repeat in (None, planned.repeat)
            and self.micro_batch_size in (None, cell.layout.micro_batch_size)
        )


ENDINGS: dict[str, tuple[Rule, ...]] = {
    WEAK: (
        Rule("deepspeed", 192, "nan"),
        Rule("torch_tensor", 384, TIME_LIMIT),
        Rule("axonn", 96, NEVER_RAN, repeat=3),
        Rule("torch_fsdp", 48, CRASH, repeat=2, micro_batch_size=4),
        Rule("megatron_lm", 384, CRASH, repeat=2),
        Rule("megatron_lm", 384, CRASH, repeat=3),
    ),
    STRONG: (
        Rule("axonn", 384, "not_available"),
        Rule("torch_tensor", 192, TIME_LIMIT),
        Rule("deepspeed", 96, "nan", repeat=2),
        Rule("torch_fsdp", 384, CRASH),
        Rule("megatron_lm", 192, NEVER_RAN, micro_batch_size=1),
    ),
    NO_BASELINE: (
        Rule("axonn", 48, NEVER_RAN),
        Rule("axonn", 192, CRASH),
        Rule("megatron_lm", 96, "nan"),
        Rule("deepspeed", 192, TIME_LIMIT),
        Rule("torch_fsdp", 384, TIME_LIMIT),
        Rule("torch_tensor", 96, "not_available"),
        Rule("torch_tensor", 384, NEVER_RAN),
    ),
    TWO_DEVICES: (Rule("torch_fsdp", 96, ELSEWHERE, micro_batch_size=4),),
}


def batch_time_s(cell: TrainingCell) -> float:
    """Return the time of a batch on V100s: products at a share of the peak, empty stages, and what is sent.

    With sharded parameters 8 bytes a parameter and micro-batch are sent (6 under DeepSpeed), the parameters of a tensor
    rank only; between tensor ranks four times a layer's result for each layer, twice for its two passes.
    """
    layout, model = cell.layout, cell.model
    flops = model.recomputing_flops_per_step(cell.global_batch_size)
    assert flops is not None
    share = PEAK_SHARE[cell.framework] * SHARE_OF_MICRO_BATCH[layout.micro_batch_size]
    bubble = 1 + (layout.pipeline_parallel - 1) / cell.num_micro_batches
    products_s = flops / (PEAK_FLOPS_PER_S * share * cell.num_gpus) * bubble
    options = layout.options
    is_sharded = options.get("zero_stage") == 3 or options.get("accumulate") == "shards" or options.get("depth", 1) > 1
    bytes_a_parameter = 6 if cell.framework == "deepspeed" else 8
    sent = 0.0
    if is_sharded:
        sent += cell.num_micro_batches * bytes_a_parameter * model.num_parameters / layout.tensor_parallel
    if layout.tensor_parallel > 1:
        # Within a node, over links that are five times as fast.
        sequences = cell.global_batch_size / layout.data_parallel / layout.pipeline_parallel
        sent += 8 * 2 * sequences * model.seq_length * model.hidden_size * model.num_layers / 5
    return products_s + EXPOSED * sent / BYTES_PER_S


@cache
def full_study(name: str, repeats: int = 3) -> Study:
    """Return a study of NAMES as its file plans it, with repeats."""
    file = f"config/studies/{WEAK if name == WEAK else STRONG}.yaml"
    config = check_config(read_yaml(ROOT / file, ROOT) | {"repeats": repeats}, "study", ROOT, file)
    system = load_system(SYSTEM, ROOT)
    return expand_study(name, file, config, system, load_models(ROOT), load_hardware(ROOT), ROOT)


@cache
def full_outcomes(name: str, repeats: int = 3) -> dict[tuple[str, int], Outcome]:
    """Return what became of every cell and repeat of a study."""
    return {p.key: _outcome(name, p) for p in full_study(name, repeats).planned}


@cache
def full_data(name: str, repeats: int = 3) -> StudyData:
    """Return what tables and figures of a study are made from; it is shared, so do not change it."""
    rows = measurement_rows(full_study(name, repeats), full_outcomes(name, repeats), load_hardware(ROOT))
    return study_data(rows, read_reference(REFERENCE))


def write_measurements_of(name: str, folder: Path, repeats: int = 3) -> Path:
    """Write measurements.csv of a study, and return its path."""
    path = folder / "measurements.csv"
    write_measurements(full_data(name, repeats).measurements, path)
    return path


def _outcome(name: str, planned: PlannedCell) -> Outcome:
    cell = planned.cell
    assert planned.obstacle is None, f"{cell.label()}: {planned.obstacle}"
    if not _fits(cell):
        return ok(_record(planned, status="oom", reason="a rank ran out of GPU memory"))
    how = next((rule.how for rule in ENDINGS[name] if rule.applies(planned)), "ok")
    if isinstance(how, Outcome):
        return how
    if how == ELSEWHERE:
        return ok(_record(planned, device_name=OTHER_DEVICE_NAME))
    reason = {"ok": "", "nan": "the loss of batch 4 is not finite", "not_available": NO_MPI}[how]
    return ok(_record(planned, status=how, reason=reason))


def _record(
    planned: PlannedCell, status: str = "ok", reason: str = "", device_name: str = DEVICE_NAME
) -> dict[str, Any]:
    cell = planned.cell
    # By the label: ids change with the versions of packages.
    source = random.Random(f"{cell.label()} {planned.repeat}")
    of_repeat = batch_time_s(cell) * (1 + SPREAD * source.uniform(-1, 1))
    times = [of_repeat * (1 + 0.2 * SPREAD * source.uniform(-1, 1)) for _ in range(10)]
    changes: dict[str, Any] = {} if status in ("ok", "nan") else {"ranks": []}
    record = make_record(
        cell,
        planned.repeat,
        times,
        warmup_s=3 * of_repeat,
        losses=[*LOSSES[:3], *["nan"] * 8] if status == "nan" else LOSSES,
        status=status,
        reason=reason,
        device_name=device_name,
        system=SYSTEM,
        check=False,  # a test validates some of them: all would take most of the time
        **changes,
    )
    # Ranks that hold one copy of the model together read the same share of the batch.
    model_parallel = cell.num_gpus // cell.layout.data_parallel
    estimate = estimate_for(load_adaptor(cell.framework), cell)
    assert estimate is not None
    for rank in record["ranks"]:
        rank["data_rank"] = rank["rank"] // model_parallel
        rank["peak_memory_bytes"] = int(0.96 * estimate.total_gib * GIB)
    record["tokens"] |= {key: cell.corpus[key] for key in ("source", "revision", "tokenizer") if key in cell.corpus}
    return record


def _fits(cell: TrainingCell) -> bool:
    estimate = estimate_for(load_adaptor(cell.framework), cell)
    return estimate is not None and estimate.fits(MEMORY_GIB)
