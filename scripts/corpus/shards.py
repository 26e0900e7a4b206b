"""Shards of one text, `<name>-00000-of-00002<suffix>`: all of them must be there."""

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

_SHARD = re.compile(r"(?P<before>.*-)(?P<number>[0-9]{1,9})-of-(?P<total>[0-9]{1,9})(?P<after>.*)", re.DOTALL)
_NAMES_SHOWN = 5


def check_shards(paths: Iterable[Path]) -> None:
    """Raise ValueError where files of a split are shards and some are missing, or are of two divisions of the text.

    Shards are counted from 0 or from 1. Files without a number and a total in their names are no shards.
    """
    series: dict[tuple[Path, str, str], dict[str, set[int]]] = {}
    for path in paths:
        if found := _SHARD.fullmatch(path.name):
            divisions = series.setdefault((path.parent, found["before"], found["after"]), {})
            divisions.setdefault(found["total"], set()).add(int(found["number"]))
    for (folder, before, after), divisions in series.items():
        if len(divisions) > 1:
            words = ", ".join(f"-of-{total}" for total in sorted(divisions))
            raise ValueError(
                f"the corpus' folder {folder} has shards {before}...{after} of several divisions ({words}), so that "
                "the same text may be there twice: keep one of them"
            )
        ((total, numbers),) = divisions.items()
        first = 1 if int(total) in numbers else 0
        wanted = range(first, first + int(total))
        num_there = sum(number in wanted for number in numbers)
        missing = list(itertools.islice((number for number in wanted if number not in numbers), _NAMES_SHOWN))
        if missing:
            names = [f"{before}{number:0{len(total)}}-of-{total}{after}" for number in missing]
            num_more = len(wanted) - num_there - len(missing)
            raise ValueError(
                f"the corpus has {num_there} of {int(total)} shards {before}...-of-{total}{after} in {folder}; missing "
                f"are {', '.join(names)}{f' and {num_more} more' if num_more else ''}. Put all of them in one folder "
                f"and give its path; what is there is a corpus of its own once its name does not say -of-{total}"
            )
