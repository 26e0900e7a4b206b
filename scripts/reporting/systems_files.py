"""Read one study's measurements on several systems, and write the files that put them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from contracts.errors import ConfigError, nearest
from planning.studies import NAME, NAME_RULE, study_names
from reporting.study_data import load_study_data
from reporting.systems_comparison import systems_comparison
from reporting.table_files import write_frame
from settings.config import read_yaml

MEASUREMENTS = "measurements.csv"


def write_comparison(study: str, systems: Sequence[str], root: Path) -> list[Path]:
    """Write the three files, each complete or not at all, and return their paths.

    Raises ConfigError for a wrong name or a file that is not there, saying what to run, and ValueError for a file that
    holds something else; nothing is written then.
    """
    name = "+".join(systems)
    frame = systems_comparison(read_all(study, systems, root))
    return write_frame(frame, root / "results" / "comparisons" / study, name, f"{study}-{name}")


def read_all(study: str, systems: Sequence[str], root: Path) -> list[pd.DataFrame]:
    """Return the measurements of each system, in the order given. Raises as `write_comparison` does."""
    for what, name in (("study", study), *(("system", system) for system in systems)):
        if not NAME.fullmatch(name):
            raise ConfigError(f"{what} {name!r}: {NAME_RULE}")
    twice = sorted({system for system in systems if systems.count(system) > 1})
    if twice:
        raise ConfigError(f"system {', '.join(twice)} is given twice; a comparison needs different systems")
    for system in systems:
        if not measurements_path(study, system, root).is_file():
            raise ConfigError(_what_is_missing(study, system, root))
    return [_read(study, system, root) for system in systems]


def measurements_path(study: str, system: str, root: Path) -> Path:
    return root / "results" / system / study / MEASUREMENTS


def _read(study: str, system: str, root: Path) -> pd.DataFrame:
    path = measurements_path(study, system, root)
    frame = load_study_data(path).measurements
    shown = path.relative_to(root)
    for column, wanted in (("study", study), ("system", system)):
        found = frame[column].iloc[0]
        if found != wanted:
            raise ConfigError(
                f"{shown}: is of {column} {found or 'unknown'!r}, not {wanted!r}; its folder was renamed or copied. "
                "Measure every machine as a system of its own (a file in config/systems/)"
            )
    return frame


def _what_is_missing(study: str, system: str, root: Path) -> str:
    """Return one message: which name is wrong, or what to run where."""
    studies = study_names(root)
    if study not in studies:
        return f"there is no study {study!r} in config/studies{nearest(study, studies)}"
    file = root / "config" / "systems" / f"{system}.yaml"
    results = root / "results"
    measured = sorted(path.parent.parent.name for path in results.glob(f"*/{study}/{MEASUREMENTS}"))
    if not file.is_file() and not (results / system).is_dir():
        known = sorted({path.stem for path in file.parent.glob("*.yaml")} | set(measured))
        return f"there is no system {system!r} in config/systems or results{nearest(system, known)}"
    shown = measurements_path(study, system, root).relative_to(root)
    what = f"{shown}: there is no such file (there is one of: {', '.join(measured) or 'no system'})"
    copy = f"copy {shown.parent} here from the machine that has it"
    if not file.is_file():
        return f"{what}; {copy}"
    profile = " --profile slurm" if "slurm" in (read_yaml(file, root) or {}) else ""
    return (
        f"{what}. Measure on that machine with `./run {study}{profile} --config system={system}`, or write what is "
        f"measured already with `.venv/bin/python scripts/write_outputs.py --partial --system {system} {study}`, or "
        f"{copy}"
    )
