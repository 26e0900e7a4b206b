"""What readers see of the AxoNN paper's tables: one for each comparison, and one of what is measured beside published.

The numbers are those of the CSV, rounded, with their spread, and with the reason in the place of a missing one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reporting.captions import (
    comparison_text,
    counted,
    device_text,
    lead_text,
    peak_text,
    repeats_text,
    sentences,
    settings_text,
    stand_in_text,
    units_of,
)
from reporting.leads import Lead, marked
from reporting.published import Published
from reporting.rendering import EMPTY, Display, Span, format_range, format_ratios, format_spread
from reporting.result_texts import batch_time_text, layout_text, over_baseline_text
from reporting.results import Result, grouped
from reporting.study_data import StudyData

_PUBLISHED_HEADINGS = {
    "percentage_of_peak_throughput": "percent of peak",
    "training_days": "training days",
    "batch_time_s": "batch time (s)",
    "days_saved": "days saved",
    "percent_saved": "percent of days saved",
}


@dataclass(frozen=True)
class ComparedResult:
    """One result with its lead over the best other framework, and what is published of the same."""

    result: Result
    lead: Lead
    published: tuple[Published, ...]


def displays(data: StudyData, compared: Sequence[ComparedResult]) -> list[Display]:
    """Return a display for each comparison, and a last one beside the published values where there are any."""
    found = [_measured_display(data, members) for members in grouped(compared, _comparison).values()]
    beside = _published_display(data, compared)
    return [*found, beside] if beside else found


def _comparison(one: ComparedResult) -> str:
    return one.result.comparison


def _measured_display(data: StudyData, compared: Sequence[ComparedResult]) -> Display:
    results = [one.result for one in compared]
    units = units_of(results)
    with_speedup = results[0].scaling != "weak_model"
    headings = (
        "Model", _heading(units), "Framework", "Repeats", "Batch time (s)", "Training days", "Percent of peak",
        "Best other", "Speedup over best other", "Days saved",
        *(["Speedup"] if with_speedup else []), "Parallel efficiency", "Best layout",
    )  # fmt: skip
    cells = [_cells(one, len(headings), with_speedup) for one in compared]
    notes = [
        f"{r.model_name} on {counted(r.num_gpus, units)}, {r.framework_name}: {note}"
        for r in results
        for note in r.shown_notes
    ]
    caption = f"{data.title}, comparison {results[0].comparison}"
    wide = (len(headings) - 1,)
    aside = tuple(range(headings.index("Days saved") + 1, len(headings)))
    return Display(
        caption, headings, tuple(cells), tuple(notes), wide, group=2, details=_details(results),
        fold=(headings.index("Repeats"),), aside=aside, aside_title="scaling and layouts",
    )  # fmt: skip


def _cells(one: ComparedResult, width: int, with_speedup: bool) -> tuple[str | Span, ...]:
    result, lead = one.result, one.lead
    head = (result.model_name, str(result.num_gpus), result.framework_name)
    if not result.is_measured:
        return (*head, Span(result.shown_text, width - len(head)))
    no_other = EMPTY if result.comparable else "not compared"
    return (
        *head,
        result.repeats_text,
        batch_time_text(result),
        format_spread(result.training_days),
        format_spread(result.percentage_of_peak),
        lead.other.framework_name if lead.other else no_other,
        marked(format_spread(lead.speedup, 3), lead.verdict),
        format_spread(lead.days_saved),
        *([over_baseline_text(result, result.speedup)] if with_speedup else []),
        over_baseline_text(result, result.parallel_efficiency),
        layout_text(result),
    )


def _published_display(data: StudyData, compared: Sequence[ComparedResult]) -> Display | None:
    shown = [
        (one.result, published) for one in compared for published in one.published if published.measured.n
    ]  # fmt: skip
    if not shown:
        return None
    units = units_of([one.result for one in compared])
    names = {one.result.framework: one.result.framework_name for one in compared}
    # What differs everywhere is said once.
    common = [d for d in shown[0][1].differences if all(d in one.differences for _, one in shown)]
    otherwise = "see below" if common else "as far as the source says"
    rows = []
    for result, one in shown:
        own = [difference for difference in one.differences if difference not in common]
        metric = _PUBLISHED_HEADINGS[one.metric] + (f" over {names[one.compared_with]}" if one.compared_with else "")
        rows.append((
            result.model_name, str(result.num_gpus), result.framework_name, result.repeats_text, metric,
            marked(format_spread(one.measured), one.verdict), format_range(one.value_min, one.value_max),
            format_ratios(one.ratio_min, one.ratio_max),
            f"not comparable because: {'; '.join(own)}" if own else otherwise,
        ))  # fmt: skip
    sources = dict.fromkeys(one.where for _, one in shown)
    details = f"Published in {'; '.join(sources)}. Ratio: measured / published, over both ends of a range."
    if any(one.compared_with for _, one in shown):
        details += " What is saved is over the fastest of the frameworks that the source compared, which is named."
    headings = (
        "Model", _heading(units), "Framework", "Repeats", "Metric", "Measured", "Published", "Ratio", "Comparable?",
    )  # fmt: skip
    notes = [f"All rows: not comparable because: {'; '.join(common)}."] if common else []
    notes += dict.fromkeys(f"Published {_PUBLISHED_HEADINGS[one.metric]}: {one.note}." for _, one in shown if one.note)
    caption = f"{data.title}: measured beside published"
    return Display(
        caption, headings, tuple(rows), tuple(notes), wide=(4, 8), group=2, details=details, fold=(3,)
    )  # fmt: skip


def _heading(units: str) -> str:
    return units if units == "GPUs" else units.capitalize()


def _details(results: Sequence[Result]) -> str:
    parts = [
        comparison_text(results),
        device_text(results),
        settings_text(results),
        f"percent of peak: the paper's formula, of {peak_text(results)}",
        "training days are for 300 billion tokens",
        "best other: the fastest of the other frameworks at the same point",
        stand_in_text(results),
        repeats_text(results),
        lead_text(results),
    ]
    return sentences(parts)
