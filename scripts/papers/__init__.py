"""Layouts of each paper's tables and figures: one module a paper. Here they are found by name.

A wrong name gets an error that lists the right ones. Nobody keeps a list of the papers.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Sequence
from types import ModuleType
from typing import Any

from contracts.cell import Cell


def load_paper(name: str) -> ModuleType:
    """The module papers.<name>, which has TABLES and FIGURES; ValueError for a name that is no paper's."""
    module = _import(name)
    if module is None:
        raise ValueError(
            f"there is no paper {name!r}{_nearest(name, paper_names())}; a paper is a file in scripts/papers/"
        )
    return module


def paper_names() -> list[str]:
    """Return every module in papers/ that has TABLES and FIGURES (the others are helpers)."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__) if _import(found.name) is not None)


def find_table(paper: str, table: str) -> Callable[..., Any]:
    """The function (StudyData -> DataFrame) of a table; ValueError for a wrong name."""
    return _find(paper, "table", load_paper(paper).TABLES, table)


def find_figure(paper: str, figure: str) -> Callable[..., Any]:
    """The function (StudyData, Form -> matplotlib Figure) of a figure; ValueError for a wrong name."""
    return _find(paper, "figure", load_paper(paper).FIGURES, figure)


def check_outputs(paper: str, tables: Iterable[str], figures: Iterable[str], scalings: Collection[str]) -> None:
    """Raise ValueError for a table or figure that the paper does not have, or that no comparison of the study fills.

    scalings: those of the study's comparisons. Said before hours are spent on what should fill a table.
    """
    module = load_paper(paper)
    for kind, names, find in (("table", tables, find_table), ("figure", figures, find_figure)):
        needed = getattr(module, f"{kind.upper()}_SCALINGS", {})
        for name in names:
            find(paper, name)
            if name in needed and not set(needed[name]).intersection(scalings):
                raise ValueError(
                    f"{kind}s: {name} shows comparisons whose scaling is {' or '.join(needed[name])}, and the study's "
                    f"are {', '.join(sorted(set(scalings)))}; take the {kind} out, or add such a comparison"
                )


def check_cells(paper: str, cells: Sequence[Cell]) -> None:
    """Raise ValueError, beginning with the key, where the paper's tables could not be filled from a study's cells.

    A paper that can tell has a function `check_cells`.
    """
    check = getattr(load_paper(paper), "check_cells", None)
    if check:
        check(cells)


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
