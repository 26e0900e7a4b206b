"""Find a paper, a table or a figure by name; a wrong name gets an error that lists the right ones."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import papers


def load_paper(name: str) -> ModuleType:
    """The module papers.<name>, which has TABLES and FIGURES; ValueError for a name that is no paper's."""
    module = _import(name)
    if module is None:
        raise ValueError(
            f"there is no paper {name!r}{_nearest(name, paper_names())}; a paper is a file in scripts/papers/"
        )
    return module


def paper_names() -> list[str]:
    """Every module in papers/ that has TABLES and FIGURES (the others are helpers)."""
    return sorted(found.name for found in pkgutil.iter_modules(papers.__path__) if _import(found.name) is not None)


def find_table(paper: str, table: str) -> Callable[..., Any]:
    """The function (StudyData -> DataFrame) of a table; ValueError for a wrong name."""
    return _find(paper, "table", load_paper(paper).TABLES, table)


def find_figure(paper: str, figure: str) -> Callable[..., Any]:
    """The function (StudyData -> matplotlib Figure) of a figure; ValueError for a wrong name."""
    return _find(paper, "figure", load_paper(paper).FIGURES, figure)


def check_outputs(paper: str, tables: Iterable[str], figures: Iterable[str]) -> None:
    """ValueError where a paper has no such table or figure: said before hours are spent on what should fill it."""
    for table in tables:
        find_table(paper, table)
    for figure in figures:
        find_figure(paper, figure)


def _find(paper: str, kind: str, functions: dict[str, Callable[..., Any]], name: str) -> Callable[..., Any]:
    if name not in functions:
        raise ValueError(f"paper {paper} has no {kind} {name!r}{_nearest(name, functions)}")
    return functions[name]


def _import(name: str) -> ModuleType | None:
    full_name = f"papers.{name}"
    if not name.isidentifier():
        return None
    try:
        module = importlib.import_module(full_name)
    except ModuleNotFoundError as error:
        # A module that a paper itself lacks is another mistake, and has to be seen.
        if error.name != full_name:
            raise
        return None
    return module if hasattr(module, "TABLES") and hasattr(module, "FIGURES") else None


def _nearest(wrong: str, right: Iterable[str]) -> str:
    names = sorted(right)
    near = difflib.get_close_matches(wrong, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f" ({hint}there are: {', '.join(names) or 'none'})"
