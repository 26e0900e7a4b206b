"""Find workloads by name: each is a module or package of workloads/ with a name WORKLOAD. No list of them is kept."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

import workloads
from contracts.cell import COMMON_DEFAULTS, Cell
from contracts.errors import ConfigError, nearest, shown_value
from contracts.workload import Workload

DEFAULT: str = COMMON_DEFAULTS["workload"]


def workload_names() -> list[str]:
    """Return the names of all workloads; the other modules of workloads/ are what their ranks share."""
    return sorted(found.name for found in pkgutil.iter_modules(workloads.__path__) if _workload(found.name))


def load_workload(name: str) -> Workload:
    """Return a workload; ConfigError, without a place, for a wrong name."""
    is_there = name in {found.name for found in pkgutil.iter_modules(workloads.__path__)}
    workload = _workload(name) if is_there else None
    if workload is None:
        raise ConfigError(f"there is no workload {shown_value(name)}{nearest(name, workload_names())}")
    return workload


def cell_from_identity(identity: Mapping[str, Any], subject: str = "") -> Cell:
    """Return the cell of an identity; `subject` is what stands for the model in its path."""
    return load_workload(identity.get("workload", DEFAULT)).cell_from_identity(identity, subject)


def _workload(name: str) -> Workload | None:
    return getattr(importlib.import_module(f"workloads.{name}"), "WORKLOAD", None)
