"""Blocks of a page that are generated: what stands between two comments that name the block."""

from __future__ import annotations

import re
from pathlib import Path

from contracts.atomic import replace_when_complete


def block(text: str, name: str) -> str:
    """Return what a page has between `<!-- <name>: generated... -->` and `<!-- <name>: end -->`.

    Raises ValueError where the page does not have both comments, once each and in this order.
    """
    return _parts(text, name)[1]


def replace_block(path: Path, name: str, content: str) -> None:
    """Write a page with `content` in the place of a block; nothing is written where it has it already."""
    text = path.read_text(encoding="utf-8")
    before, old, after = _parts(text, name)
    if old != f"{content}\n":
        with replace_when_complete(path, "w") as file:
            file.write(f"{before}{content}\n{after}")


def _parts(text: str, name: str) -> tuple[str, str, str]:
    begin = rf"<!-- {re.escape(name)}: generated[^\n]*-->\n"
    end = rf"<!-- {re.escape(name)}: end -->"
    found = re.findall(rf"(?s)\A(.*?{begin})(.*?)({end}.*)\Z", text)
    if len(found) != 1 or len(re.findall(begin, text)) != 1 or len(re.findall(end, text)) != 1:
        raise ValueError(f"the page has no block {name}: it begins with <!-- {name}: generated ... --> and ends with "
                         f"<!-- {name}: end -->, once each")  # fmt: skip
    return found[0]
