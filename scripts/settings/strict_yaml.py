"""YAML as people read it: what YAML 1.1 quietly turns into something else is refused, with what to write instead.

`1:30` is 90 in YAML 1.1, `010` is 8, `no` is false, and a key given twice silently keeps its last value.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from contracts.errors import shown_value

# Deep enough for every file there is (6 levels) and far from what Python can nest.
MAX_DEPTH = 30
# Aliases of aliases grow a file of a few lines to billions of values.
MAX_VALUES = 1_000_000

_WHOLE_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL_NUMBER = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_UNUSABLE_CHARACTER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")
_TAG = "tag:yaml.org,2002:"
_BOOLEANS = ("true", "True", "TRUE", "false", "False", "FALSE")


class MarkedError(ValueError):
    """A value that is refused; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text; MarkedError or yaml.YAMLError where it cannot be, or should not be, read."""
    composer = _Composer(text)
    try:
        node = composer.get_single_node()
    finally:
        composer.dispose()
    if node is None:
        return None
    _count_values(node, {})
    return _value(node)


class _Composer(yaml.SafeLoader):
    """PyYAML up to the nodes of a document; explicit tags, and nesting that no file of ours has, end here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        event = self.peek_event()
        line = event.start_mark.line + 1
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise MarkedError(f"the tag {tag.replace(_TAG, '!!')} is not read here; write the value without it", line)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise MarkedError(f"nested more than {MAX_DEPTH} levels deep", line)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _value(node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise MarkedError("a key is a list or a mapping; write a text", line)
        key = _scalar(key_node)
        if not isinstance(key, str):
            raise MarkedError(f"the key {key_node.value or 'without a name'} is no text; put it in quotes", line)
        if key in mapping:
            raise MarkedError(f"key {shown_value(key)} is given twice", line)
        mapping[key] = _value(value_node)
    return mapping


def _scalar(node: yaml.ScalarNode) -> Any:
    kind = node.tag.removeprefix(_TAG)
    read = _READERS.get(kind)
    if read is None:
        line = node.start_mark.line + 1
        raise MarkedError(f"{node.value} has a meaning of its own in YAML; put it in quotes for a text", line)
    try:
        return read(node.value)
    except ValueError as error:
        raise MarkedError(str(error), node.start_mark.line + 1) from None


def _text(text: str) -> str:
    found = _UNUSABLE_CHARACTER.search(text)
    if found:
        raise ValueError(
            f"{shown_value(text)} holds the character U+{ord(found[0]):04X}, which no table and no terminal can show; "
            f"remove it"
        )
    return text


def _boolean(text: str) -> bool:
    if text not in _BOOLEANS:
        meant = "true" if text.lower() in ("yes", "on") else "false"
        raise ValueError(f"{text} means {meant} in YAML; write {meant}, or {text!r} in quotes for a text")
    return text.lower() == "true"


def _whole_number(text: str) -> int:
    if ":" in text:
        raise ValueError(f"{_sixties(text)}; write the plain number, or '{text}' in quotes for a text")
    if not _WHOLE_NUMBER.fullmatch(text):
        value = yaml.safe_load(text) if len(text) < 100 else "another number"
        raise ValueError(
            f"{text[:100]} means {value} in YAML; write a decimal number without leading zeros and underscores, or "
            f"'{text[:100]}' in quotes for a text"
        )
    if len(text) > 300:
        raise ValueError(f"a number of {len(text)} digits is too large")
    return int(text)


def _decimal_number(text: str) -> float:
    if ":" in text:
        raise ValueError(f"{_sixties(text)}; write the plain number, or '{text}' in quotes for a text")
    if "_" in text:
        plain = text.replace("_", "")
        raise ValueError(f"{text} means {plain} in YAML; write {plain}, or '{text}' in quotes for a text")
    if not _DECIMAL_NUMBER.fullmatch(text):
        raise ValueError(f"{text} is no number that can be used here")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


def _sixties(text: str) -> str:
    if len(text) > 100:
        return "a number with colons counts in sixties in YAML"
    return f"{text} counts in sixties in YAML and means {yaml.safe_load(text):g}"


def _date(text: str) -> None:
    raise ValueError(f"{text} is a date in YAML; put it in quotes for a text")


_READERS = {
    "str": _text,
    "null": lambda text: None,
    "bool": _boolean,
    "int": _whole_number,
    "float": _decimal_number,
    "timestamp": _date,
}


def _count_values(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node holds, an alias counted wherever it stands; MarkedError for one inside itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in known:
        if known[id(node)] == 0:
            raise MarkedError("an anchor that holds itself has no end", node.start_mark.line + 1)
        return known[id(node)]
    known[id(node)] = 0  # being counted
    inner = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    total = 1 + sum(_count_values(part, known) for part in inner)
    if total > MAX_VALUES:
        raise MarkedError(f"holds more than {MAX_VALUES} values", node.start_mark.line + 1)
    known[id(node)] = total
    return total
