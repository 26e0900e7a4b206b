"""The columns of measurements.csv: order, unit, type and meaning; and reading and writing the file.

Read the file with `read_measurements`, not with a bare `pandas.read_csv`: that turns the status "nan" into a missing
value and a cell id such as 123456789012 or 1e5000000000 into a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from contracts.atomic import replace_when_complete
from contracts.outcomes import STATUSES

TEXT, INTEGER, NUMBER, BOOLEAN = "text", "integer", "number", "boolean"


@dataclass(frozen=True)
class Column:
    """One column; `unit` is empty for what is counted or named. An empty field means: not known, not applicable."""

    name: str
    type: str
    unit: str
    meaning: str


def _columns(type_: str, entries: Iterable[tuple[str, str, str]]) -> list[Column]:
    return [Column(name, type_, unit, meaning) for name, unit, meaning in entries]


# Where a row belongs and how it ended.
_WHERE = [
    *_columns(TEXT, [
        ("system", "", "the machine measured (config/systems/<system>.yaml)"),
        ("study", "", "the study this row belongs to"),
        ("study_title", "", "the study's title, which heads tables and figures"),
        ("comparison", "", "the comparison of that study; a cell shared by two has a row in each"),
        ("framework", "", "the adaptor"),
        ("framework_shown_as", "", "its name in tables and figures"),
    ]),
    *_columns(INTEGER, [("framework_style", "", "its place among the colours and hatches of figures, from 0")]),
    *_columns(TEXT, [
        ("model", "", "the shape's name in config/models.yaml"),
        ("model_shown_as", "", "its name in tables and figures"),
    ]),
    *_columns(INTEGER, [
        ("num_parameters", "", "the exact count of the model's parameters"),
        ("num_gpus", "", "GPUs used; on a CPU, processes"),
        ("num_nodes", "", "nodes used; planned where there is no record"),
        ("repeat", "", "which repeat of the cell, from 1"),
    ]),
    *_columns(TEXT, [
        ("status", "", "ok, oom, nan, not_available, unsupported or missing"),
        ("reason", "", "why the status is not ok"),
        ("kind", "", "for missing cells: never_ran, crash, killed, time_limit, too_large, corrupt_record, ..."),
    ]),
]  # fmt: skip

# What was asked for.
_SETTINGS = [
    *_columns(TEXT, [
        ("precision", "", "fp32, bf16 or fp16"),
        ("activation_checkpointing", "", "none, full or selective"),
    ]),
    *_columns(INTEGER, [
        ("global_batch_size", "sequences", "sequences in one optimizer step, over all GPUs"),
        ("micro_batch_size", "sequences", "sequences a data rank works on at a time"),
        ("num_micro_batches", "", "micro-batches of each data rank in one optimizer step"),
        ("seq_length", "tokens", "tokens in one sequence"),
        ("num_layers", "", "transformer layers"),
        ("hidden_size", "", "width of a layer"),
        ("num_heads", "", "attention heads"),
        ("vocab_size", "tokens", "vocabulary of the model"),
        ("data_parallel", "", "degree of data parallelism"),
        ("tensor_parallel", "", "degree of tensor parallelism"),
        ("pipeline_parallel", "", "degree of pipeline parallelism"),
    ]),
    *_columns(TEXT, [
        ("layout", "", "degrees, micro-batch and options in words"),
        ("layout_options", "", "options that only this framework knows, name=value joined by ;"),
    ]),
    *_columns(BOOLEAN, [
        ("best_layout", "", "the fastest of its framework, model and num_gpus that can be compared; see notes"),
    ]),
    *_columns(TEXT, [("corpus", "", "what was trained on: source and revision of the text")]),
    *_columns(INTEGER, [("seed", "", "seed of weights and batches")]),
    *_columns(NUMBER, [
        ("learning_rate", "", "AdamW's constant rate"),
        ("adam_epsilon", "", "what AdamW adds to the root of the second moment"),
    ]),
]  # fmt: skip

# What was measured, and what follows from it.
_METRICS = [
    *_columns(NUMBER, [
        ("batch_time_s", "s", "mean over the last 10 of 11 batches of the slowest rank's time"),
        ("batch_time_std_s", "s", "sample standard deviation of those 10"),
        ("batch_time_median_s", "s", "median of those 10: a few slow batches do not move it"),
        ("first_half_batch_time_s", "s", "median of the first 5 of those 10"),
        ("second_half_batch_time_s", "s", "median of the last 5 of those 10"),
        ("input_time_s", "s", "mean over the same batches of the longest wait for input; not in batch_time_s"),
        ("warmup_batch_time_s", "s", "the first batch, which enters no mean"),
        ("window_batch_time_s", "s", "a tenth of the window from the first timed batch's start to the last one's end"),
    ]),
    *_columns(TEXT, [
        ("timing_check", "", "ok, or window: not its batches and waits within 5 %, drift: halves differ by over 20 %, "
            "outlier: a batch took over twice the median; several are joined by +"),
    ]),
    *_columns(INTEGER, [
        ("repeats_measured", "", "repeats of this layout that ended ok: what the columns of the layout are made from"),
    ]),
    *_columns(NUMBER, [
        ("layout_batch_time_s", "s", "mean of batch_time_s over those repeats: what all comparing is made from"),
        ("layout_batch_time_spread_s", "s", "sample standard deviation over those repeats; empty with one repeat"),
    ]),
    *_columns(NUMBER, [
        ("expected_training_time_s", "s", "time to train on 300 billion tokens: 3e11 t / (b s)"),
        ("percentage_of_peak_throughput", "%", "arXiv:2110.13005: counts a recomputed forward pass in every cell"),
    ]),
    *_columns(BOOLEAN, [
        ("percentage_comparable_to_paper", "", "full activation checkpointing and half precision, as in the paper"),
    ]),
    *_columns(NUMBER, [
        ("model_flops_utilization_percent", "%", "model FLOP/s without recomputation over the peak of all GPUs"),
        ("hardware_flops_utilization_percent", "%", "FLOP/s really done over the peak; empty if selective"),
        ("model_flops_per_step", "FLOP", "FLOPs of one optimizer step without recomputation"),
        ("model_flops_per_s_per_gpu", "FLOP/s", "model_flops_per_step / batch_time_s / num_gpus"),
        ("tokens_per_s", "tokens/s", "tokens of all GPUs together in a second"),
        ("samples_per_s", "sequences/s", "sequences of all GPUs together in a second"),
        ("reported_samples_per_s", "sequences/s", "the same as the framework computes and prints it itself"),
        ("reported_tflops_per_gpu", "1e12 FLOP/s", "FLOP/s of a GPU as the framework computes and prints it itself"),
        ("reported_disagreement_percent", "%", "how far the framework's own figure lies above (below: negative) ours"),
    ]),
    *_columns(TEXT, [
        ("scaling", "", "strong, weak_batch, weak_model or none: what stays the same inside the comparison"),
        ("baseline_policy", "", "smallest_common: where every framework has one; own_smallest: the framework's own"),
    ]),
    *_columns(NUMBER, [
        ("speedup", "", "the layout's tokens/s (from layout_batch_time_s) over the baseline's; none under weak_model"),
        ("speedup_spread", "", "standard deviation of speedup, to first order from the spreads of the two times"),
        ("parallel_efficiency", "", "speedup N0 / N; under weak_model model FLOP/s per GPU over the baseline's"),
        ("parallel_efficiency_spread", "", "standard deviation of parallel_efficiency, likewise"),
    ]),
    *_columns(TEXT, [("baseline", "", "cell_id of the baseline: the framework's best layout on baseline_num_gpus")]),
    *_columns(INTEGER, [("baseline_num_gpus", "", "N0")]),
    *_columns(BOOLEAN, [
        ("comparable", "", "false for what must not be set beside the others, such as repeats that differ twofold or "
            "other settings; the notes say why"),
    ]),
    *_columns(NUMBER, [
        ("peak_flops_per_gpu", "FLOP/s", "dense half-precision peak; on a CPU the highest rate of the like jobs"),
        ("own_peak_flops_per_gpu", "FLOP/s", "on a CPU: a process's rate in this very job"),
    ]),
    *_columns(TEXT, [("peak_source", "", "the entry of config/hardware.yaml, or: measured")]),
    *_columns(INTEGER, [("peak_num_cells", "", "how many jobs of the study the measured peak is the highest of")]),
    *_columns(NUMBER, [
        ("final_loss", "nats/token", "global loss of the last batch"),
        ("peak_memory_gib", "GiB", "most memory a rank held during the timed batches"),
    ]),
    *_columns(TEXT, [("losses", "nats/token", "global loss of every batch, joined by ;")]),
]  # fmt: skip

# Under which circumstances.
_CIRCUMSTANCES = [
    *_columns(TEXT, [
        ("device", "", "cuda or cpu"),
        ("device_name", "", "as the driver names it; on a CPU the processor's model; several are joined by +"),
        ("hosts", "", "host names, joined by ;"),
    ]),
    *_columns(INTEGER, [
        ("threads_per_process", "", "threads that every process really had; empty where they differ"),
        ("cpu_cores", "", "cores the launcher could use on its node"),
        ("host_cores", "", "cores of the whole node, whoever may use them"),
    ]),
    *_columns(TEXT, [
        ("binding", "", "cores that each process was bound to: their number, or several joined by +"),
        ("variables", "", "thread, allocator and system-file variables the processes had, name=value joined by ;"),
        ("processor", "", "the nodes' processor; several are joined by +"),
        ("kernel", "", "the nodes' kernel; several are joined by +"),
        ("driver", "", "the GPUs' driver; several are joined by +"),
        ("python", "", "the processes' Python; several are joined by +"),
        ("tokens_sha256", "", "digest of the token file that was read"),
    ]),
    *_columns(NUMBER, [
        ("others_cpu_percent", "percent", "share of the launcher's node's cores that others used while the cell ran"),
    ]),
    *_columns(BOOLEAN, [("oversubscribed", "", "on a CPU: processes x threads on a node exceed its cores")]),
    *_columns(TEXT, [("initial_weights", "", "shared: framework-neutral, from the seed; native: the framework's own")]),
    *_columns(BOOLEAN, [
        ("cuda_stand_in", "", "a package that only knows CUDA ran on a CPU in its place: right losses, no fair times"),
    ]),
    *_columns(BOOLEAN, [("code_changed", "", "the record's code differs from today's")]),
    *_columns(TEXT, [
        ("started_at", "UTC", "when the job started"),
        ("git_commit", "", "commit of the checkout, -dirty where tracked files differed from it"),
        ("versions", "", "what the job ran with, name version joined by ;"),
        ("cell_id", "", "hash of everything that decides what is measured; cell.json says it in words"),
        ("record_path", "", "the raw facts, from the repository's root"),
        ("notes", "", "what a reader has to know about this row, joined by ;"),
    ]),
]  # fmt: skip

COLUMNS: tuple[Column, ...] = (*_WHERE, *_SETTINGS, *_METRICS, *_CIRCUMSTANCES)
REQUIRED = ("study", "comparison", "framework", "model", "num_gpus", "status", "cell_id")

# A carriage return ends a row for readers of CSV, no file holds a lone surrogate, and many programs stop at a NUL.
_UNWRITABLE = re.compile("[\r\0\ud800-\udfff]")
# Files of before have True and False.
_TRUTH = {"TRUE": True, "True": True, "true": True, "FALSE": False, "False": False, "false": False}


def measurements_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a table with all columns, in order and typed; raise ValueError for a key that is no column.

    Types: text (empty: ""), integer (Int64), number (float64, empty: NaN), boolean (nullable).
    """
    rows = list(rows)
    unknown = {key for row in rows for key in row} - {column.name for column in COLUMNS}
    if unknown:
        raise ValueError(f"no such column: {', '.join(sorted(unknown))}; describe it in metrics/columns.py")
    return pd.DataFrame(
        {column.name: typed_column([row.get(column.name) for row in rows], column.type) for column in COLUMNS}
    )


def read_measurements(path: Path) -> pd.DataFrame:
    """Return the file as `measurements_frame` made it; columns it lacks are empty, columns unknown here stay text.

    Raises ValueError where the file is no measurements.csv.
    """
    raw = pd.read_csv(path, dtype=str, keep_default_na=False)
    absent = [name for name in REQUIRED if name not in raw]
    if absent:
        raise ValueError(f"{path}: no column {', '.join(absent)}; this is no measurements.csv of this project")
    for name in REQUIRED:
        if (raw[name] == "").any():
            raise ValueError(f"{path}: column {name} is empty in a row; every row has one")
    unknown = sorted(set(raw["status"]) - {*STATUSES})
    if unknown:
        raise ValueError(f"{path}: no such status: {', '.join(unknown)} (known: {', '.join(STATUSES)})")
    known = {column.name for column in COLUMNS}
    typed = {}
    for column in COLUMNS:
        values = raw[column.name].tolist() if column.name in raw else [""] * len(raw)
        try:
            typed[column.name] = typed_column(values, column.type)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{path}: column {column.name} holds something else than {column.type}: {error}") from None
    return pd.DataFrame({**typed, **{name: raw[name] for name in raw if name not in known}})


def write_measurements(frame: pd.DataFrame, path: Path) -> None:
    """Write `path` (measurements.csv) and beside it measurements.columns.csv, which says what each column means."""
    # The file that is waited for comes last.
    with replace_when_complete(path.with_suffix(".columns.csv"), "w") as file:
        columns_frame().to_csv(file, index=False, lineterminator="\n")
    with replace_when_complete(path, "w") as file:
        file.write(csv_text(frame))


def csv_text(frame: pd.DataFrame) -> str:
    """Return a typed table as CSV; booleans are TRUE and FALSE, the words that R, DuckDB and pandas share."""
    spelled = {
        name: frame[name].map({True: "TRUE", False: "FALSE"}).fillna("")
        for name in frame.columns
        if frame[name].dtype == "boolean"
    }
    return str(frame.assign(**spelled).to_csv(index=False, lineterminator="\n"))


def columns_frame() -> pd.DataFrame:
    """Return COLUMNS as a table: name, type, unit, meaning."""
    return pd.DataFrame([vars(column) for column in COLUMNS], columns=["name", "type", "unit", "meaning"])


def _writable(text: str) -> str:
    """Return the text in a form that takes no other row with it: a reason may hold whatever a program printed."""
    if not _UNWRITABLE.search(text):
        return text
    return re.sub("\r\n?", "\n", text).replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def typed_column(values: list[Any], type_: str) -> pd.Series:
    """Return values as a column of a type; None and "" are empty."""
    empty = (None, "")
    if type_ == TEXT:
        return pd.Series(["" if value is None else _writable(str(value)) for value in values], dtype="str")
    if type_ == INTEGER:
        return pd.Series([None if value in empty else int(value) for value in values], dtype="Int64")
    if type_ == NUMBER:
        return pd.Series([float("nan") if value in empty else float(value) for value in values], dtype="float64")
    return pd.Series([None if value in empty else _TRUTH.get(value, value) for value in values], dtype="boolean")
