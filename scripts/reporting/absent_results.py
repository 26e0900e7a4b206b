"""Words for what has no result: how it ended, why, and which layout or repeat of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contracts.outcomes import EndKind

STATUS_TEXT = {
    "ok": "measured",
    "oom": "OOM",
    "nan": "NaN loss",
    "not_available": "not available",
    "unsupported": "unsupported",
    "missing": "missing",
}
# A cell of a table has room for this much of a reason; the CSV has all of it.
REASON_CHARACTERS = 80

Row = Mapping[str, Any]


def status_text(row: Row, reason_characters: int | None = None) -> str:
    """Return how a row ended and why: `OOM`, `unsupported: ...`, `missing: crash: ...`, `missing: needs 384 GPUs, ...`.

    The reason is cut to `reason_characters` and to one line; None gives all of it.
    """
    status, kind, reason = row["status"], row["kind"], row["reason"]
    if reason_characters is not None:
        reason = shortened(reason, reason_characters)
    if status == "missing":
        words = ["missing", "" if kind == EndKind.TOO_LARGE else kind, reason]
        return ": ".join(word for word in words if word) if any(words[1:]) else "missing: unknown"
    if status in ("unsupported", "not_available") and reason:
        return f"{STATUS_TEXT[status]}: {reason}"
    return STATUS_TEXT[status]


def endings_text(rows: Sequence[Row], reason_characters: int | None = None) -> str:
    """Return how these rows ended, each with its layout and repeat where they ended differently."""
    by_layout: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_layout[row["cell_id"]].append(row)
    layouts: dict[str, list[str]] = defaultdict(list)
    for members in by_layout.values():
        layouts[_repeats_text(members, reason_characters)].append(members[0]["layout"])
    if len(layouts) == 1:
        (text,) = layouts
        return f"all {len(by_layout)} layouts: {text}" if len(by_layout) > 1 else text
    return "; ".join(f"{_numbered('layout', names, ' / ')}: {text}" for text, names in layouts.items())


def shortened(text: str, characters: int) -> str:
    """Return the text on one line, cut with an ellipsis where it is longer."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1].rstrip() + "…"


def _repeats_text(rows: Iterable[Row], reason_characters: int | None) -> str:
    repeats: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        repeats[status_text(row, reason_characters)].append(str(row["repeat"]))
    if len(repeats) == 1:
        (text,) = repeats
        return text
    return ", ".join(f"{_numbered('repeat', numbers, ', ')}: {text}" for text, numbers in repeats.items())


def _numbered(word: str, names: Sequence[str], separator: str) -> str:
    return f"{word}{'s' if len(names) > 1 else ''} {separator.join(names)}"
