"""A hint for a target that is no study but has nearly the name of one: Snakemake only says that no rule makes it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from contracts.errors import nearest

NO_RULE = re.compile(r"No rule to produce (\S+) ")
# How alike a word and a study's name must be, from 0 to 1.
LIKENESS = 0.7


def study_hint(message: str, names: Sequence[str]) -> str:
    """Return the hint for Snakemake's message that no rule makes a target; empty where no study has a name like it."""
    found = NO_RULE.search(message)
    word = found.group(1) if found else ""
    if not word or word in names or not difflib.get_close_matches(word, names, n=1, cutoff=LIKENESS):
        return ""
    return f"there is no study {word!r}{nearest(word, names)}"
