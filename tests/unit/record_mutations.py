"""What can become of a record's text, from a slip of an editor to a torn file: a pure function of a random source."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

Record = dict[str, Any]

NUMBERS = (
    0, -1, 1, 2, -0.0, 0.5, 1e-9, 1e-300, 5e-324, 1e18, 1e30, -1e30, 1e200, 1e308, -1e308, 2**31, 2**53 + 1, 2**63 - 1,
    2**63, -(2**63), 10**30, 10**400, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
TEXTS = (
    "", " ", "nan", "inf", "-inf", "True", "1e999", "0x10", "a;b", "a,b", '"', "'", "\n", "\r", "a\rb\r\n", "\t", "\0",
    "\ud800", "\udcff", "\ufeff", "\u202e", "é" * 3, "𝛼", "$x_1$", "\\begin{tabular}", "a|b", "{0}", "%s", "x" * 5000,
    "host0", "host1", "ok", "oom", "../../x", "=1+1",
)  # fmt: skip
OTHERS = (None, True, False, [], {}, [[]], [1], {"a": 1}, [None] * 11, [1.0] * 11, list(range(11)))


def mutated_text(record: Record, source: random.Random) -> str:
    """The text of the file that holds the record after one to three changes."""
    changed = copy.deepcopy(record)
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        source.choice(CHANGES)(changed, source)
    # A change may have put what JSON calls Infinity; files that hold it as a number are the ones that parse.
    text = json.dumps(changed, indent=source.choice((None, 2)), ensure_ascii=source.random() < 0.5)
    text = text.replace("Infinity", "1e999") if source.random() < 0.7 else text
    if source.random() < 0.15:
        text = source.choice(TEXT_CHANGES)(text, source)
    return text


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value inside lies, as keys and indices from the top."""
    found = [at] if at else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inner:
        found += places(held, (*at, key))
    return found


def holder(record: Record, place: tuple[Any, ...]) -> Any:
    held: Any = record
    for key in place[:-1]:
        held = held[key]
    return held


def anywhere(record: Record, source: random.Random) -> tuple[Any, Any]:
    """The list or mapping that holds one value of the record, and its index or key there."""
    # The top level is small beside the stamps, so half of the changes begin there.
    part = (
        {key: record[key] for key in source.sample(sorted(record), 1)} if source.random() < 0.5 and record else record
    )
    place = source.choice(places(part) or [()])
    return (holder(record, place), place[-1]) if place else (record, None)


def drop(record: Record, source: random.Random) -> None:
    held, key = anywhere(record, source)
    if key is not None:
        del held[key]


def replace(record: Record, source: random.Random) -> None:
    held, key = anywhere(record, source)
    if key is not None:
        held[key] = copy.deepcopy(source.choice(source.choice((NUMBERS, TEXTS, OTHERS))))


def replace_alike(record: Record, source: random.Random) -> None:
    """By another value of the same type: what a schema does not tell."""
    held, key = anywhere(record, source)
    value = held[key] if key is not None else None
    if isinstance(value, bool):
        held[key] = not value
    elif isinstance(value, int | float):
        held[key] = source.choice([n for n in NUMBERS if isinstance(n, type(value))])
    elif isinstance(value, str):
        held[key] = source.choice(TEXTS)


def change_number(record: Record, source: random.Random) -> None:
    numbers = [p for p in places(record) if isinstance(holder(record, p)[p[-1]], int | float)]
    place = source.choice(numbers or [()])
    if not place:
        return
    held, key = holder(record, place), place[-1]
    value = held[key]
    change: Callable[[Any], Any] = source.choice((
        lambda v: -v, lambda v: v + 1, lambda v: v - 1, lambda v: v * 10, lambda v: v / 10, lambda v: v * 1e6,
        lambda v: v + 1e-12, lambda v: v * (1 + 1e-15), lambda v: v + source.uniform(-100, 100), float, str,
    ))  # fmt: skip
    try:
        held[key] = change(value)
    except OverflowError:
        held[key] = 1e308


def duplicate(record: Record, source: random.Random) -> None:
    held, key = anywhere(record, source)
    if isinstance(held, list):
        held.insert(source.randrange(len(held) + 1), copy.deepcopy(held[key]))
    elif key is not None:
        held[f"{key}{source.choice(('_', '2', ' ', chr(0)))}"] = copy.deepcopy(held[key])


def swap(record: Record, source: random.Random) -> None:
    """Two values of one list or mapping, stamps more often than not."""
    ranks = record.get("ranks")
    if source.random() < 0.6 and isinstance(ranks, list) and ranks and isinstance(ranks[0], dict):
        held: Any = source.choice(ranks)
        held = (
            held.get(source.choice(("batch_start_s", "batch_end_s", "input_time_s")))
            if isinstance(held, dict)
            else None
        )
    else:
        held, _ = anywhere(record, source)
    if isinstance(held, list | dict) and len(held) > 1:
        one, other = source.sample(list(held) if isinstance(held, dict) else range(len(held)), 2)
        held[one], held[other] = held[other], held[one]


def shift_stamps(record: Record, source: random.Random) -> None:
    """A rank's clock jumps, or runs at another speed."""
    ranks = record.get("ranks")
    rank = source.choice(ranks) if isinstance(ranks, list) and ranks else None
    if not isinstance(rank, dict):
        return
    first, seconds = source.randrange(11), source.choice((-100.0, 100.0, -1e-9, 1e-6, 1e7, 1e9, 3e9, 1e17))
    speed = source.choice((1.0, 1.0, 1e-6, 1e-12, 1e5, -1.0))
    for series in ("batch_start_s", "batch_end_s"):
        stamps = rank.get(series)
        if isinstance(stamps, list) and all(isinstance(stamp, int | float) for stamp in stamps):
            rank[series] = [s * speed + (seconds if i >= first else 0) for i, s in enumerate(stamps)]


def nest(record: Record, source: random.Random) -> None:
    held, key = anywhere(record, source)
    if key is not None:
        for _ in range(source.choice((1, 3, 60, 300))):
            held[key] = [held[key]] if source.random() < 0.5 else {"a": held[key]}


def harmless(record: Record, source: random.Random) -> None:
    """What another run could have left just as well: such a record has to count, whatever stands in it."""
    # (a record that another change has emptied has no such place any more)
    ranks = (
        [rank for rank in record["ranks"] if isinstance(rank, dict)] if isinstance(record.get("ranks"), list) else []
    )
    text = source.choice([t for t in TEXTS if "\0" not in t and not any("\ud800" <= c <= "\udfff" for c in t)])
    kind = source.randrange(8)
    if kind == 0 and isinstance(record.get("versions"), dict):
        record["versions"][text] = text
    elif kind == 1 and isinstance(record.get("launch"), dict):
        record["launch"]["others_cpu_s"] = source.choice((None, 0, 0.0, 1e-9, 1.0, 1e6))
        record["launch"]["job_id"] = text
        record["launch"]["node_shared"] = source.choice((None, True, False))
    elif kind == 2:
        record["git_commit"], record["git_dirty"] = text, source.choice((None, True, False))
    elif kind == 3 and isinstance(record.get("settings"), dict):
        record["settings"][text] = source.choice((text, None, True, 1.5))
    elif kind == 4:
        record["reported_by_framework"] = {"samples_per_s": source.choice((0, -1.0, 1e-30, 1e29, 12.5))}
    elif kind == 5:
        for rank in ranks:
            rank["device_name"] = text
            rank["peak_memory_bytes"] = source.choice((None, 0, 1, 2**40))
    elif kind == 6:
        for rank in ranks:
            rank["matmul_seconds"] = source.choice(([], [1e-9], [1e9, 1.0], [0.01] * 4))
    elif kind == 7 and record.get("status") == "ok":
        batch, loss = source.randrange(11), source.choice((0, 0.0, -0.0, 1e-300, -1.0, 1e38, 12))
        for rank in ranks:
            if isinstance(rank.get("losses"), list) and len(rank["losses"]) == 11:
                rank["losses"][batch] = loss


CHANGES = (
    drop, replace, replace, replace_alike, replace_alike, change_number, change_number, duplicate, swap, shift_stamps,
    nest, harmless, harmless, harmless, harmless,
)  # fmt: skip


def cut(text: str, source: random.Random) -> str:
    return text[: source.randrange(len(text))]


def cut_out(text: str, source: random.Random) -> str:
    first = source.randrange(len(text))
    return text[:first] + text[first + source.choice((1, 10, 1000)) :]


def put_in(text: str, source: random.Random) -> str:
    at = source.randrange(len(text))
    return text[:at] + source.choice((*TEXTS[:20], "[" * 100_000, "1e999", "NaN", "\\ud800", "9" * 5000)) + text[at:]


def another_digit(text: str, source: random.Random) -> str:
    digits = [index for index, character in enumerate(text) if character.isdigit()] or [0]
    at = source.choice(digits)
    return text[:at] + source.choice("0123456789.e-") + text[at + 1 :]


def second_key(text: str, source: random.Random) -> str:
    """JSON does not forbid that a key stands there twice."""
    return text.replace("{", '{"status": "ok", "repeat": 1, "rank": 0, ', source.choice((1, 2, -1)))


TEXT_CHANGES = (cut, cut_out, put_in, another_digit, another_digit, second_key, lambda text, _: "\ufeff" + text)
