"""Damage to configuration files for the fuzz of configs: what hands, editors and merges do to them, and malice."""

from __future__ import annotations

import copy
import random
from typing import Any

import yaml

NASTY_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, -1, 7, 10**9, 10**12, 10**30, 10**308, 10**400, 0.0, -0.0, 0.5, 2.0, 1e-308, 1e308,
    float("inf"), float("nan"), "", " ", "x", "all", "auto", "none", "equal", "shared", "08", "1e-4", "1e999",
    "1.25e14",
    "nan", "\r", "a\nb", "a\x07b", "\ud800", "\u2028", "~nosuchuser", "$(touch x)", "`x`", "a b", "a'b", 'a"b', "../..",
    "x" * 300, "__use_yte__", "demo", "local", "torch_ddp", "bundled", [], [1], [None], {}, {"x": 1},
    {"path": "~nosuchuser/x"},
    {"path": "."}, {"path": "\x00"}, [[[[[]]]]], [1, 1], ["x", "x"],
)  # fmt: skip
NASTY_TEXTS = (
    "1:30", "010", "0x10", "1_000", "yes", "no", "on", "2024-01-01", ".inf", ".nan", "1.0e+999", "9" * 400, "!!bool 4",
    "!!int x", "!!python/name:os.system x", "!!set {a}", "&x [*x]", "*x", "<<: 1", "=", "~", "{", "}", "[", "]", "- -",
    "? [a]", "|", ">", '"\\r"', '"\\ud800"', '"\\0"', "\t", "\x00", "\x07", "\ufeff", "é", "---", "...", "%YAML 1.1",
    "[" * 200, "{a: " * 50, "a: &a [1,1]", ": :", "# x", "'", '"', "1e5", "{? : 1}", "{1: 2}",
)  # fmt: skip


def mutated_config(text: str, chance: random.Random) -> str:
    """Return a configuration file with one to three damages, of its values or of its text."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        text = _text_damage(text, chance) if chance.random() < 0.4 else _value_damage(text, chance)
    return text


def _value_damage(text: str, chance: random.Random) -> str:
    """Damage a value where the text is still YAML; what is not, is damaged as a text."""
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, KeyError, RecursionError, TypeError):
        return _text_damage(text, chance)
    places = list(_places(data))
    if not places:
        return _text_damage(text, chance)
    holder, key = chance.choice(places)
    action = chance.choice(("nasty", "nasty", "nasty", "number", "drop", "rename", "copy", "wrap"))
    value = holder[key]
    if action == "drop":
        del holder[key]
    elif action == "rename" and isinstance(holder, dict):
        holder[_renamed(str(key), chance)] = holder.pop(key)
    elif action == "copy":
        holder[key] = copy.deepcopy(chance.choice(places)[0])
    elif action == "wrap":
        holder[key] = chance.choice(([value], {"x": value}, str(value)))
    elif action == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        holder[key] = chance.choice((value * 10**6, -value, value + 1, value - 1, value * 2, float(value), value / 3))
    else:
        holder[key] = copy.deepcopy(chance.choice(NASTY_VALUES))
    try:
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=chance.random() < 0.5)
    except (yaml.YAMLError, RecursionError):
        return _text_damage(text, chance)


def _places(data: Any, depth: int = 0) -> Any:
    """Yield (holder, key) of every value inside."""
    if depth > 20:
        return
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(pairs):
        yield data, key
        yield from _places(value, depth + 1)


def _renamed(key: str, chance: random.Random) -> str:
    return chance.choice(
        (key + "s", key[:-1] or "x", key.upper(), f" {key}", "1", "true", "x\ny", "__use_yte__", "default")
    )


def _text_damage(text: str, chance: random.Random) -> str:
    lines = text.splitlines() or [""]
    at = chance.randrange(len(lines))
    action = chance.choice(("value", "value", "token", "drop", "twice", "indent", "cut", "swap", "character"))
    if action == "value" and ":" in lines[at]:
        lines[at] = f"{lines[at].partition(':')[0]}: {chance.choice(NASTY_TEXTS)}"
    elif action == "token":
        place = chance.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:place] + chance.choice(NASTY_TEXTS) + lines[at][place:]
    elif action == "drop":
        del lines[at]
    elif action == "twice":
        lines.insert(at, lines[at])
    elif action == "indent":
        lines[at] = chance.choice(("  ", " ", "\t", "- ")) + lines[at]
    elif action == "cut":
        return "\n".join(lines)[: chance.randrange(len(text) + 1)]
    elif action == "swap":
        other = chance.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        place = chance.randrange(len(lines[at]) + 1)
        lines[at] = (
            lines[at][:place]
            + chr(chance.choice((0, 7, 13, 34, 39, 58, 123, 0x2028, 0xE9, 0x1F600)))
            + lines[at][place:]
        )
    return "\n".join(lines) + "\n"
