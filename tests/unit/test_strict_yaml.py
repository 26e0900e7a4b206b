"""What YAML 1.1 would read otherwise than people write it is refused, with file, line and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from settings.config import read_yaml
from settings.strict_yaml import MAX_DEPTH, parse_yaml
from studies import ROOT

TENFOLD = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
)


def refused(folder: Path, text: str | bytes) -> str:
    path = folder / "x.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        read_yaml(path, folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", 1), ("a: -3", -3), ("a: 0", 0), ("a: 0.5", 0.5), ("a: 1.0e-4", 1e-4), ("a: .5", 0.5), ("a: 2.", 2.0),
        ("a: true", True), ("a: FALSE", False), ("a: ~", None), ("a:", None), ("a: null", None), ("a: ''", ""),
        ("a: '1:30'", "1:30"), ('a: "010"', "010"), ("a: 'no'", "no"), ("a: on time", "on time"), ("a: 日本", "日本"),
        ("a: |\n  one\n  two\n", "one\ntwo\n"), ("a: >-\n  one\n  two\n", "one two"), ("a: '2024-01-01'", "2024-01-01"),
        ("a: ~nosuchuser", "~nosuchuser"), ("a: [1, {b: 2}]", [1, {"b": 2}]), ("a: {b: }", {"b": None}),
        ("x: &one {b: 1}\na: [*one, *one]", [{"b": 1}, {"b": 1}]),
    ],
)  # fmt: skip
def test_what_is_read_as_written(text: str, value: Any) -> None:
    read = parse_yaml(text)["a"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1:30", "1:30 counts in sixties in YAML and means 90; write the plain number, or '1:30' in quotes for a text"),
        ("1:30.5", "1:30.5 counts in sixties in YAML and means 90.5"),
        ("010", "010 means 8 in YAML; write a decimal number"),
        ("0x10", "0x10 means 16 in YAML"),
        ("0b11", "0b11 means 3 in YAML"),
        ("1_000", "1_000 means 1000 in YAML"),
        ("1_000.5", "1_000.5 means 1000.5 in YAML; write 1000.5"),
        ("yes", "yes means true in YAML; write true, or 'yes' in quotes for a text"),
        ("No", "No means false in YAML; write false, or 'No' in quotes for a text"),
        ("on", "on means true in YAML"),
        ("OFF", "OFF means false in YAML"),
        ("2024-01-01", "2024-01-01 is a date in YAML; put it in quotes for a text"),
        ("2024-01-01 10:00:00", "is a date in YAML"),
        (".inf", ".inf is no number that can be used here"),
        (".nan", ".nan is no number that can be used here"),
        ("1.0e+999", "1.0e+999 is too large"),
        ("9" * 400, "a number of 400 digits is too large"),
        ("=", "= has a meaning of its own in YAML"),
        ("!!bool 4", "the tag !!bool is not read here; write the value without it"),
        ("!!python/object:os.system x", "the tag !!python/object:os.system is not read here"),
        ("!mine {b: 1}", "the tag !mine is not read here"),
        (r'"a\rb"', "holds the character U+000D"),
        (r'"a\u0007b"', "holds the character U+0007"),
        (r'"a\ud800b"', "holds the character U+D800"),
        (r'"a\u2028b"', "holds the character U+2028"),
        ("&x [*x]", "an anchor that holds itself has no end"),
        ("&x {b: {c: *x}}", "an anchor that holds itself has no end"),
        ("[" * 1000 + "]" * 1000, f"nested more than {MAX_DEPTH} levels deep"),
        ("{1: 2}", "the key 1 is no text; put it in quotes"),
        ("{true: 2}", "the key true is no text"),
        ("{~: 2}", "the key ~ is no text"),
        ("{? : 2}", "the key without a name is no text"),
        ("{on: 2}", "on means true in YAML; write true, or 'on' in quotes"),
        ("{<<: {b: 1}}", "<< has a meaning of its own in YAML"),
        ("{b: 1, b: 2}", "key 'b' is given twice"),
    ],
)  # fmt: skip
def test_what_yaml_would_turn_into_something_else(tmp_path: Path, text: str, expected: str) -> None:
    message = refused(tmp_path, f"# a comment\nfirst: 1\nsecond: {text}\n")
    assert message.startswith("x.yaml: line 3: ")
    assert expected in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "x.yaml: line 1: is not valid YAML"),
        ("a: 1\n\tb: 2", "x.yaml: line 2: is not valid YAML"),
        ("a: *nowhere", "undefined alias 'nowhere'"),
        ("a: 1\n---\nb: 2", "is not valid YAML: expected a single document"),
        (b"a: \xff", "x.yaml: is not valid YAML: byte 4 is no UTF-8"),
        ("a: \x07", "is not valid YAML"),
        (TENFOLD, "holds more than 1000000 values"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_at_all(tmp_path: Path, text: str | bytes, expected: str) -> None:
    assert expected in refused(tmp_path, text)


@pytest.mark.parametrize("path", sorted((ROOT / "config").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_file_of_the_project_is_read_as_plain_yaml_reads_it(path: Path) -> None:
    import yaml

    assert read_yaml(path, ROOT) == yaml.safe_load(path.read_text(encoding="utf-8"))
