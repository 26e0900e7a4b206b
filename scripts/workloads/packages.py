"""The packages that a rank has: their versions and places, and what to do where they are not those of the cell."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.adaptor import Framework, NotAvailable

# not_available is a record, and records are kept.
RUN_AGAIN = "then status.py forget --status not_available has the cell run again"


def versions(framework: Framework) -> dict[str, str | None]:
    """Versions of Python, the kernel and every distribution the adaptor names; None where one is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "kernel": platform.release()}
    for package in framework.packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def check_versions(framework: Framework, environment: Mapping[str, Any]) -> None:
    """Raise NotAvailable where a package that the framework names is there in another version than the cell says: the
    record would be kept under a version that was not measured.
    """
    pinned = dict(line.split("==", 1) for line in environment.get("requirements", ()) if "==" in line)
    for package, installed in versions(framework).items():
        wanted = pinned.get(package)
        # What follows a plus says how it was built (2.13.0+cu126).
        if wanted and installed and installed.partition("+")[0] != wanted:
            file = f"envs/{framework.environment}.txt"
            where = importlib.metadata.distribution(package).locate_file("").absolute()
            if entry := python_path_entry(where):
                raise NotAvailable(
                    f"{package} {installed} lies in {where}, which PYTHONPATH puts first ({entry}), and {file} says "
                    f"{package}=={wanted}: unset PYTHONPATH ({RUN_AGAIN})"
                )
            raise NotAvailable(
                f"{package} {installed} is installed and {file} says {package}=={wanted} (it lies in {where}): "
                f"{install_command(framework)} ({RUN_AGAIN}), or write the installed version into that file "
                f"(its cells are then new ones)"
            )


def check_places(framework: Framework) -> None:
    """Raise NotAvailable where PYTHONPATH puts a copy of a package, of which no version is known, before the one that
    is installed.
    """
    for package in framework.packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError, ImportError, ValueError):
            spec = importlib.util.find_spec(package.replace("-", "_").lower())
            origin = Path(spec.origin).absolute() if spec and spec.origin and spec.has_location else None
            installed = importlib.metadata.distribution(package).locate_file("").absolute()
            if origin and not origin.is_relative_to(installed) and (entry := python_path_entry(origin)):
                raise NotAvailable(
                    f"{package} would be loaded from {origin}, since PYTHONPATH names {entry}, and not from "
                    f"{installed}, where it is installed: unset PYTHONPATH ({RUN_AGAIN})"
                )


def python_path_entry(path: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the entry of PYTHONPATH under which `path` lies; None where it lies under none."""
    entries = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return next((entry for entry in entries if Path(path).is_relative_to(Path(entry).absolute())), None)


def install_command(framework: Framework) -> str:
    """For the Python that this runs under, which is seldom the one that `pip` on PATH belongs to."""
    return f"{sys.executable} -m pip install -r envs/{framework.environment}.txt"


def lacks_package(error: BaseException, framework: Framework) -> bool:
    """Whether a package of the framework is not installed, as opposed to a module that its code should have."""
    # A distribution's module has its name, or that of its family (megatron-core).
    modules = {name for p in framework.packages for name in (p.replace("-", "_").lower(), p.partition("-")[0].lower())}
    return isinstance(error, ModuleNotFoundError) and (error.name or "").lower() in modules
