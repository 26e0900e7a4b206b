"""Read configuration files: strict schemas, errors that name the file, the key and the nearest right one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from matrix.errors import ConfigError, nearest


def read_yaml(path: Path, root: Path) -> Any:
    """The parsed file; ConfigError names it relative to `root` when it is missing, unreadable or no YAML."""
    shown = _shown(path, root)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        beside = sorted(p.stem for p in path.parent.glob("*.yaml"))
        raise ConfigError(f"{shown}: there is no such file{nearest(path.stem, beside)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown}: cannot be read: {error}") from None
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ConfigError(f"{shown}: is not valid YAML: {' '.join(str(error).split())}") from None


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
    return yaml.load(
        (root / "workflow" / "schemas" / f"{schema}.schema.yaml").read_text(encoding="utf-8"), Loader=_LOADER
    )


def _explain(error: jsonschema.ValidationError) -> str:
    """One finding in words; for `anyOf` the branch that came furthest."""
    while error.context:
        error = max(error.context, key=lambda e: (len(e.absolute_path), e.validator != "type"))
    where = ".".join(str(part) for part in error.absolute_path) or "top level"
    if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        known = list(error.schema.get("properties", {}))
        unknown = [key for key in error.instance if key not in known]
        return "; ".join(f"{where}: unknown key {key!r}{nearest(key, known)}" for key in unknown)
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        return f"{where}: missing key {', '.join(map(repr, missing))}"
    if error.validator == "enum":
        return f"{where}: {error.instance!r} is not allowed{nearest(error.instance, error.validator_value)}"
    if error.validator == "type":
        kinds = [error.validator_value] if isinstance(error.validator_value, str) else error.validator_value
        wanted = " or ".join(_KINDS.get(kind, kind) for kind in kinds)
        return f"{where}: {error.instance!r} is not {wanted}{_hint(error)}"
    meaning = error.schema.get("description", "") if isinstance(error.schema, Mapping) else ""
    return f"{where}: {error.message}" + (f" ({meaning})" if meaning else "")


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
    """YAML reads 1e-4, without a point, as a text."""
    if error.validator_value == "number" and isinstance(error.instance, str):
        with contextlib.suppress(ValueError):
            return f"; YAML takes it for a text, write {float(error.instance):.1e}"
    meaning = error.schema.get("description", "") if isinstance(error.schema, Mapping) else ""
    return f" ({meaning})" if meaning else ""


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


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML that refuses a key given twice, where plain YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, "a key is a list or a mapping", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)
