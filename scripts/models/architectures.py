"""Find architectures by name: each is a module of models/ with a class SHAPE. Nobody keeps a list of them."""

from __future__ import annotations

import importlib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import models
from contracts.errors import ConfigError, nearest, shown_value
from contracts.model import Model

DEFAULT = "gpt"


def architecture_names() -> list[str]:
    """Return the names of all modules of models/ that define a SHAPE."""
    stems = {path.stem for folder in models.__path__ for path in Path(folder).glob("*.py") if path.stem.isidentifier()}
    return sorted(stem for stem in stems if hasattr(importlib.import_module(f"models.{stem}"), "SHAPE"))


def _file_of(architecture: str) -> Path | None:
    files = (Path(folder) / f"{architecture}.py" for folder in models.__path__)
    return next((file for file in files if file.is_file()), None)


def shape_class(architecture: str) -> type[Any]:
    """Return the class of an architecture's shapes; ConfigError, without a place, for a wrong name."""
    is_there = isinstance(architecture, str) and architecture.isidentifier() and _file_of(architecture) is not None
    shape = getattr(importlib.import_module(f"models.{architecture}"), "SHAPE", None) if is_there else None
    if shape is None:
        hint = nearest(architecture, architecture_names())
        raise ConfigError(f"there is no architecture {shown_value(architecture)}{hint}")
    return shape


def model_of(name: str, entry: dict[str, Any]) -> Model:
    """Return the model that an entry of config/models.yaml, or a cell's identity, describes.

    Raises ConfigError, without a place, for a wrong architecture, and for keys that it lacks or does not have.
    """
    shape = shape_class(entry.get("architecture", DEFAULT))
    known = {field.name: field for field in fields(shape) if field.name != "name"}
    unknown = [key for key in entry if key not in known]
    if unknown:
        raise ConfigError(f"unknown key {shown_value(unknown[0])}{nearest(unknown[0], known)}")
    lacking = [key for key, field in known.items() if key not in entry and _is_required(field)]
    if lacking:
        raise ConfigError(f"missing key {', '.join(map(repr, lacking))}")
    return shape(name=name, **entry)


def _is_required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
