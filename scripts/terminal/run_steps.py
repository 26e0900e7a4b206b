"""The jobs around the cells in words: tokens, Pythons of frameworks, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from terminal.short_words import counted_words

# By rule: while it runs, and once it is done, empty where it says that itself. A rule that is not here tells nothing.
STEP_WORDS: Mapping[str, tuple[str, str]] = {
    "tokenize_corpus": ("tokenizing the corpus {corpus}", ""),
    "make_venv": ("installing envs/{environment}.txt", ""),
    "locate_conda_environment": ("locating envs/{environment}.yaml", "located envs/{environment}.yaml"),
    "collect_measurements": ("collecting the measurements of {study}", ""),
    "await_jobs": ("waiting for jobs of an earlier call", "jobs of an earlier call have ended"),
    "make_table": ("making table {table}", ""),
    "make_figure": ("drawing figure {figure}", ""),
}
# What follows the cells: told together, once all of it is done.
OUTPUT_NOUNS: Mapping[str, str] = {
    "collect_measurements": "measurements file", "make_table": "table", "make_figure": "figure",
}  # fmt: skip
# What these print themselves comes below: they are announced when they begin.
LONG_STEPS = ("make_venv", "locate_conda_environment")


def outputs_text(counts: Mapping[str, int]) -> str:
    """Return `made 1 measurements file, 3 tables, 3 figures`, from the number of jobs by rule."""
    made = [counted_words(counts[rule], noun) for rule, noun in OUTPUT_NOUNS.items() if rule in counts]
    return f"made {', '.join(made)}"


def step_words(rule: str, wildcards: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what a job of the rule does, while it does and once it has; None for one of which nothing is said."""
    words = STEP_WORDS.get("await_jobs" if rule.startswith("await_jobs_") else rule)
    if words is None:
        return None
    doing, done = words
    return doing.format_map(dict(wildcards)), done.format_map(dict(wildcards))
