"""What has to stand under every table and figure: device, scaling, baseline, settings."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from contracts.devices import Device
from reporting.results import LEFT_OUT, Result

SCALING_TEXT = {
    "strong": "strong scaling (model and batch stay the same)",
    "weak_batch": "weak scaling (the batch grows with the {units}, the model stays the same)",
    "weak_model": "weak scaling (the model grows with the {units}, the batch stays the same)",
    "none": "no scaling comparison",
}
BASELINE_TEXT = {
    "smallest_common": "the smallest number of {units} at which every framework has a result",
    "own_smallest": "each framework's own smallest number of {units}",
}


def units_of(results: Sequence[Result]) -> str:
    """What `num_gpus` counts here: GPUs, or the processes of a CPU."""
    return "processes" if {result.device for result in results} == {Device.CPU} else "GPUs"


def counted(number: int, units: str) -> str:
    """`1 process`, `2 processes`, `1 GPU`; units as `units_of` gives them."""
    return f"{number} {units if number != 1 else {'processes': 'process', 'GPUs': 'GPU'}[units]}"


def noted_text(results: Sequence[Result]) -> str:
    """Whose numbers the tables have a note on; empty where there is none."""
    noted: dict[str, set[int]] = {}
    for result in results:
        if result.notes:
            noted.setdefault(result.framework_name, set()).add(result.num_gpus)
    points = [f"{name} ({', '.join(map(str, sorted(numbers)))})" for name, numbers in sorted(noted.items())]
    return f"the tables have notes on {', '.join(points)}, by number of {units_of(results)}" if points else ""


def left_out_text(results: Sequence[Result]) -> str:
    """Which layouts ran on other devices than the rest, so that they cannot be their framework's best; usually none."""
    left_out = dict.fromkeys(
        f"{result.framework_name} ({result.num_gpus}), {note}"
        for result in results
        for note in result.shown_notes
        if LEFT_OUT in note and "device kind" in note
    )
    return f"left out: {'; '.join(left_out)}" if left_out else ""


def not_compared_text(results: Sequence[Result]) -> str:
    """Whose numbers are shown and must not be set beside the others; empty where there is none."""
    points = [f"{r.framework_name} ({r.num_gpus})" for r in results if r.status == "ok" and not r.comparable]
    where = ", ".join(dict.fromkeys(points))
    return f"not comparable, for the reasons in the tables' notes: {where}" if points else ""


def device_text(results: Sequence[Result]) -> str:
    """Which devices were measured, and that processes of a CPU are no GPUs."""
    names = sorted({result.device_name for result in results if result.device_name})
    shown = ", ".join(names) or "nothing measured yet"
    if units_of(results) == "processes":
        return f"CPU processes on {shown}, not GPUs" if names else "CPU processes, not GPUs (nothing measured yet)"
    return f"Device: {shown}"


def settings_text(results: Sequence[Result]) -> str:
    """Precision, activation checkpointing and batch of these results; all values where they differ."""
    precisions = sorted({result.precision for result in results})
    checkpointing = sorted({result.activation_checkpointing for result in results})
    batches = sorted({result.global_batch_size for result in results})
    return (
        f"precision {', '.join(precisions)}, activation checkpointing {', '.join(checkpointing)}, "
        f"global batch {', '.join(map(str, batches))}"
    )


def comparison_text(results: Sequence[Result]) -> str:
    """Scaling and baseline policy of the results of one comparison, with the numbers of GPUs used as baseline."""
    one, units = results[0], units_of(results)
    used = sorted({r.baseline_num_gpus for r in results if r.baseline_num_gpus is not None})
    text = f"{SCALING_TEXT[one.scaling]}; baseline: {BASELINE_TEXT[one.baseline_policy]}".format(units=units)
    return f"{text} (here {', '.join(map(str, used))})" if used else f"{text} (none yet)"


def no_baseline_text(results: Sequence[Result]) -> str:
    """Why no result of this comparison has a baseline, and what would give each a speedup; empty where one has."""
    measured = [result for result in results if result.is_measured]
    if not measured or any(result.baseline_num_gpus is not None for result in results):
        return ""
    if not any(result.comparable for result in measured):
        return "No speedup: what was measured cannot be compared. The notes of the tables say why."
    return (
        f"No speedup: there is no number of {units_of(results)} at which every framework has a result. "
        "`baseline: own_smallest` in the study's file sets each against its own smallest number."
    )


def stand_in_text(results: Sequence[Result]) -> str:
    """Whose times are no measurements of speed; empty where all are."""
    names = sorted({result.framework_name for result in results if result.cuda_stand_in})
    who = " and ".join(names)
    return f"times of {who} are of a CPU in CUDA's place, for correctness only, not to be compared" if names else ""


def repeats_text(results: Sequence[Result]) -> str:
    """How many repeats stand behind the values, and what the spread beside them is of; empty if nothing is measured."""
    numbers = {result.repeats for result in results if result.is_measured}
    parts = []
    if numbers - {1}:
        most = _range(numbers - {1})
        parts.append(
            f"of {most} repeats: mean time ± sample standard deviation over the repeats; everything else follows from "
            "the mean time, with its spread to first order"
        )
    if 1 in numbers:
        parts.append(
            f"{'everything is' if numbers == {1} else 'where Repeats says 1, values are'} of one repeat: ± beside a "
            "batch time is over the ten batches of that run, which says nothing about another run"
        )
    return ". ".join(f"{part[0].upper()}{part[1:]}" for part in parts)


def figure_repeats_text(results: Sequence[Result]) -> str:
    """The same for a figure: how many repeats, and what its error bars are."""
    numbers = {result.repeats for result in results if result.is_measured}
    if not numbers:
        return ""
    if numbers == {1}:
        return "one repeat (n = 1), so no error bars: how far another run would differ is not known"
    least = ", none where n = 1" if 1 in numbers else ""
    return f"mean time of n = {_range(numbers)} repeats, or what follows from it; error bars: their spread{least}"


def lead_text(results: Sequence[Result]) -> str:
    """What counts as a lead; empty where no two frameworks are measured."""
    measured = [result for result in results if result.is_measured and result.comparable]
    if len({result.framework for result in measured}) < 2:
        return ""
    text = "a lead within the spread is none"
    if any(result.repeats == 1 for result in measured):
        text += ", and with one repeat the spread is not known"
    return text


def peak_text(results: Sequence[Result]) -> str:
    """What a percentage of peak is a percentage of."""
    if units_of(results) != "processes":
        return "the dense peak"
    cells = sorted({result.peak_num_cells for result in results if result.peak_num_cells is not None})
    of_cells = f" (among {_range(cells)} cells)" if cells else ""
    return f"the highest matrix-product rate of a process that like cells of the study measured{of_cells}"


def _range(numbers: Collection[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def sentences(parts: Sequence[str]) -> str:
    """The parts that are not empty, each with a capital and a full stop."""
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts if part)
