"""Read configuration files: strict schemas, errors that name the file, the key and the nearest right one."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from contracts.errors import ConfigError, nearest, shown_value
from contracts.project_files import shipped
from settings.strict_yaml import MarkedError, parse_yaml

LONGEST_KEY = 100
LONGEST_MESSAGE = 300


def read_yaml(path: Path, root: Path) -> Any:
    """Return what a file holds; ConfigError names it relative to `root`, and the line, where it cannot be used."""
    shown = _shown(path, root)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        beside = sorted(p.stem for p in path.parent.glob("*.yaml"))
        raise ConfigError(f"{shown}: there is no such file{nearest(path.stem, beside)}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: is not valid YAML: byte {error.start + 1} is no UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {error.strerror or error}") from None
    try:
        return parse_yaml(text)
    except MarkedError as error:
        raise ConfigError(f"{shown}: line {error.line}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        words = " ".join(filter(None, (error.context, error.problem)))
        raise ConfigError(f"{shown}: {line}is not valid YAML: {words}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{shown}: is not valid YAML: {error}") from None


def read_config(path: Path, schema: str, root: Path) -> dict[str, Any]:
    """A file that satisfies `workflow/schemas/<schema>.schema.yaml`, defaults filled in."""
    return check_config(read_yaml(path, root), schema, root, _shown(path, root))


def check_config(data: Any, schema: str, root: Path, shown: str) -> dict[str, Any]:
    """`data` with defaults filled in; ConfigError when it breaks the schema. `shown` names where it came from."""
    rules = load_schema(schema, root)
    errors = sorted(_VALIDATOR(rules).iter_errors(data), key=lambda e: list(map(str, e.absolute_path)))
    if errors:
        raise ConfigError(f"{shown}: " + "; ".join(_explain(error) for error in errors[:5]))
    return _with_defaults(data, rules)


def load_schema(schema: str, root: Path) -> dict[str, Any]:
    """Return the rules of `workflow/schemas/<schema>.schema.yaml`."""
    path = shipped(root, f"workflow/schemas/{schema}.schema.yaml")
    return _parsed_schema(path, path.stat().st_mtime_ns)


@cache
def _parsed_schema(path: Path, _mtime_ns: int) -> dict[str, Any]:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)


def _explain(error: jsonschema.ValidationError) -> str:
    """Return one finding in words; for `anyOf` the branch that came furthest."""
    while error.context:
        error = max(error.context, key=lambda e: (len(e.absolute_path), e.validator != "type"))
    where = ".".join(str(part)[:LONGEST_KEY] for part in error.absolute_path) or "top level"
    value = shown_value(error.instance)
    if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        known = list(error.schema.get("properties", {}))
        unknown = [key for key in error.instance if key not in known]
        return "; ".join(f"{where}: unknown key {shown_value(key)}{nearest(key, known)}" for key in unknown[:5])
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        return f"{where}: missing key {', '.join(map(repr, missing))}"
    if error.validator == "enum":
        return f"{where}: {value} is not allowed{nearest(error.instance, error.validator_value)}"
    if error.validator == "type":
        kinds = [error.validator_value] if isinstance(error.validator_value, str) else error.validator_value
        wanted = " or ".join(_KINDS.get(kind, kind) for kind in kinds)
        return f"{where}: {value} is not {wanted}{_hint(error)}"
    words = error.message if len(error.message) <= LONGEST_MESSAGE else f"{error.message[:LONGEST_MESSAGE]}..."
    return f"{where}: {words}{_meaning(error)}"


_KINDS = {
    "array": "a list, such as [one, two]",
    "object": "a mapping of keys to values",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}


def _hint(error: jsonschema.ValidationError) -> str:
    """Return how the value would be written where only its form is wrong: YAML reads 1e-4 as a text, for example."""
    value = error.instance
    if error.validator_value == "integer" and isinstance(value, float) and value.is_integer():
        return f"; write {value:.0f}"
    if error.validator_value in ("number", "integer") and isinstance(value, str):
        if re.fullmatch(r"[-+]?\d{1,30}", value):
            return f"; YAML takes it for a text, write {int(value)}"
        number = _number(value)
        if number is not None and (error.validator_value == "number" or number.is_integer()):
            written = f"{number:.0f}" if error.validator_value == "integer" else _in_yaml(number)
            return f"; YAML takes it for a text, write {written}"
    return _meaning(error)


def _meaning(error: jsonschema.ValidationError) -> str:
    meaning = error.schema.get("description", "") if isinstance(error.schema, Mapping) else ""
    return f" ({meaning})" if meaning else ""


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _in_yaml(number: float) -> str:
    """Return the shortest text with a point and a signed exponent that YAML reads as exactly this number."""
    texts = (f"{number:.{digits}e}" for digits in range(1, 18))
    return next(text for text in texts if float(text) == number)


def _with_defaults(data: Any, rules: Mapping[str, Any]) -> Any:
    """Fill defaults of top-level properties and of the objects among them; the schemas keep theirs there."""
    filled = dict(data)
    for key, rule in rules.get("properties", {}).items():
        if key not in filled and "default" in rule:
            filled[key] = rule["default"]
        if isinstance(filled.get(key), Mapping) and "properties" in rule:
            filled[key] = _with_defaults(filled[key], rule)
    return filled


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _is_integer(_checker: Any, value: Any) -> bool:
    """2.0 is no integer here: it would give the same cell another id."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_checker: Any, value: Any) -> bool:
    """Neither .nan nor .inf, nor an integer that no float can hold."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


_VALIDATOR = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
