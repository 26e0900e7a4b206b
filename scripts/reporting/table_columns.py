"""The columns of the tables' CSVs: unit, type and meaning. docs/tables.md prints this declaration, and a test compares.

A column that a table takes over from measurements.csv keeps its name, type and meaning (metrics/columns.py). Names made
of others (`published_<metric>_min`, `<system>.<column>`) are declared as patterns.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd

from metrics.columns import BOOLEAN, COLUMNS, INTEGER, NUMBER, TEXT, Column, csv_text, typed_column
from reporting.systems_differences import SETTINGS, WORK

# What means something else here than in measurements.csv, or is not there.
OWN_COLUMNS: tuple[Column, ...] = (
    Column("result", TEXT, "", "why there is no number; empty where there is one"),
    Column("repeats", INTEGER, "", "repeats that ended ok, of the layout shown"),
    Column("repeats_planned", INTEGER, "", "repeats planned of that layout"),
    Column("batch_time_s", NUMBER, "s", "mean of the repeats' batch times: what every other number of the row is from"),
    Column("batch_time_spread_s", NUMBER, "s", "sample standard deviation over the repeats; empty with one"),
    Column("batch_time_std_s", NUMBER, "s", "deviation over the ten batches of a run, root mean square of the repeats"),
    Column("training_days", NUMBER, "days", "time to train on 300 billion tokens"),
    Column("training_days_spread", NUMBER, "days", "its standard deviation, to first order"),
    Column("percentage_of_peak_throughput_spread", NUMBER, "%", "standard deviation of percentage_of_peak_throughput"),
    Column("best_other", TEXT, "", "the fastest of the other frameworks at the same point"),
    Column("speedup_over_best_other", NUMBER, "", "its training days over this framework's"),
    Column("speedup_over_best_other_spread", NUMBER, "", "standard deviation of speedup_over_best_other"),
    Column("days_saved", NUMBER, "days", "its training days less this framework's"),
    Column("days_saved_spread", NUMBER, "days", "standard deviation of days_saved"),
    Column("percent_saved", NUMBER, "%", "days_saved as a share of its training days"),
    Column("percent_saved_spread", NUMBER, "%", "standard deviation of percent_saved"),
    Column("lead", TEXT, "", "ahead, behind, within spread, or one repeat: the spread is then unknown"),
    Column("ideal_speedup", NUMBER, "", "num_gpus over baseline_num_gpus; none under weak_model"),
    Column("baseline", TEXT, "", "cell_id of the baseline"),
    Column("num_layouts", INTEGER, "", "layouts that this framework was to be measured with at this point"),
    Column("cell_id", TEXT, "", "of the layout shown; where there is no number, of every layout, joined by ;"),
    Column("published_best_other", TEXT, "", "the fastest of the frameworks that the published source compared"),
    Column("published_in", TEXT, "", "sources of the published values, joined by ;"),
    Column("not_comparable_because", TEXT, "", "what differs from the published settings, joined by ;"),
    Column("max_relative_difference", NUMBER, "", "largest of all batches: loss against the reference's loss"),
    Column("within_tolerance", BOOLEAN, "", "whether that is at most the tolerance; empty where nothing was compared"),
    Column("tolerance", NUMBER, "", "the largest relative difference that counts as the same"),
    Column("reference_cell_id", TEXT, "", "cell_id of the reference"),
    Column("systems_compared", TEXT, "", "the systems side by side, joined by +; ratios are over the first"),
)
# By the regular expression of the names, with the name in words that stands in the documentation.
PATTERNS: tuple[tuple[str, Column], ...] = (
    (
        r"published_\w+_(min|max)",
        Column("published_<metric>_min, _max", NUMBER, "the metric's", "the published range of a metric"),
    ),
    (
        r"ratio_to_published_\w+_(min|max)",
        Column(
            "ratio_to_published_<metric>_min, _max",
            NUMBER,
            "",
            "measured over published, for both ends of the range; _min is the smaller ratio",
        ),
    ),
    (
        r"(days|percent)_saved_over_published_best_other(_spread)?",
        Column(
            "<saving>_over_published_best_other, _spread",
            NUMBER,
            "days or %",
            "what is saved over published_best_other, as the source counts it, and its standard deviation",
        ),
    ),
    (
        r"tokens_per_s_over_\w[\w-]*?(_spread)?",
        Column(
            "tokens_per_s_over_<first>, _spread",
            NUMBER,
            "",
            "tokens_per_s over the first system's, and its standard deviation",
        ),
    ),
    (r"comparison_note", Column("comparison_note", TEXT, "", "what is not like for like with the first system")),
    (
        r"(tokens_per_s|model_flops_utilization_percent)_spread",
        Column("<metric>_spread", NUMBER, "the metric's", "the metric's standard deviation, to first order"),
    ),
)
_BY_NAME = {column.name: column for column in (*COLUMNS, *OWN_COLUMNS)}
# In a comparison of systems: the system's name, and what is a column of its own tables.
_OF_SYSTEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\.(.+)")


def column_of(name: str) -> Column:
    """Return what is declared of a table's column; an undeclared one is a mistake of ours."""
    if found := _OF_SYSTEM.fullmatch(name):
        name = found[1]
        if name in (*SETTINGS, *WORK):
            # Of several repeats, which may differ on another machine.
            return replace(_BY_NAME[name], type=TEXT)
    if name in _BY_NAME:
        return _BY_NAME[name]
    column = next((column for pattern, column in PATTERNS if re.fullmatch(pattern, name)), None)
    assert column is not None, f"column {name} of a table is not declared in reporting/table_columns.py"
    return column


def table_csv(frame: pd.DataFrame) -> str:
    """Return a table as CSV: integers without a point, booleans as TRUE and FALSE, empty where nothing is known."""
    typed = {name: typed_column(_plain(frame[name]), column_of(name).type) for name in frame.columns}
    return csv_text(pd.DataFrame(typed, index=frame.index))


def _plain(values: pd.Series) -> list[object]:
    return [None if pd.isna(value) else value for value in values]


def declaration_markdown() -> str:
    """Return the table of docs/tables.md."""
    lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
    columns = [*OWN_COLUMNS, *(column for _, column in PATTERNS)]
    lines += [f"| `{c.name}` | {c.type} | {c.unit} | {c.meaning} |" for c in columns]
    return "\n".join(lines).replace("<", "&lt;") + "\n"
