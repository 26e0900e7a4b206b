"""Note what a study's outputs were made from, as digests of contents, and tell from them which must be made anew.

Beside the outputs lies made_from/<output>.json with what went into each, written after it. Time stamps decide nothing:
a record that was replaced by an older file counts as changed, and a touched file does not.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from contracts.atomic import write_json
from contracts.cell import identity_hash
from contracts.outcomes import KINDS_THAT_STAY, EndKind, Outcome
from contracts.placement import host_name
from contracts.project_files import shipped
from planning.plan import Study, record_path, study_folder
from records.code_digests import AROUND_THE_LOOP, combined_digest

FOLDER = "made_from"
OUTPUT = "the output itself"
DRAWN_FILE = re.compile(r"results/([^/]+)/([^/]+)/(?:(tables|figures)/([^/]+)\.\w+|measurements\.csv)")
Digests = Mapping[str, str]


def made_from_path(study_folder: Path, kind: str, name: str = "") -> Path:
    """Return where the digests of one output lie; `kind` is measurements, table or figure."""
    return study_folder / FOLDER / f"{'-'.join(filter(None, (kind, name)))}.json"


def measurements_digests(study: Study, root: Path) -> dict[str, str]:
    """Return what measurements.csv of the study depends on: files by their path, the rest in words."""
    files = (
        f"config/studies/{study.name}.yaml",
        f"config/systems/{study.system.name}.yaml",
        "config/models.yaml",
        "config/hardware.yaml",
    )
    schema = "workflow/schemas/record.schema.yaml"
    adaptors = tuple(f"frameworks/{name}.py" for name in study.frameworks)
    return {
        **{path: file_digest(root / path) for path in files},
        schema: file_digest(shipped(root, schema)),
        "its cells": _cells_digest(study),
        "records": records_digest(study, root / "results"),
        # Of the adaptors and the loop too: rows measured by other code than today's are marked.
        "code": combined_digest(("collect.py", *AROUND_THE_LOOP, *adaptors)),
    }


def drawn_digests(kind: str, paper: str, measurements: Path, reference: Path | None, title: str = "") -> Digests:
    """Return what the tables or the figures (`kind`: table, figure) of a paper depend on."""
    digests = {"measurements.csv": file_digest(measurements), "its title": title}
    if reference is not None:
        digests[f"reference/{reference.name}"] = file_digest(reference)
    script = {"table": "make_tables.py", "figure": "make_figures.py"}[kind]
    return {**digests, "code": combined_digest((script, f"papers/{paper}.py"))}


def records_digest(study: Study, results: Path) -> str:
    """Return one digest of the contents of all records that the study has, and of which there are none."""
    digest = hashlib.sha256()
    for planned in study.runnable():
        path = record_path(results, study.system.name, planned)
        digest.update(f"{path.relative_to(results)} {file_digest(path)}\n".encode())
    return digest.hexdigest()[:16]


def file_digest(path: Path) -> str:
    """Return a digest of a file's content; of one that is not there or cannot be read, a word that is no digest."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "unreadable"


def is_settled(outcomes: Mapping[tuple[str, int], Outcome]) -> bool:
    """Return whether every record that is there could be read: only then is there nothing for the next call to mend."""
    return not any(outcome.kind in (EndKind.CORRUPT_RECORD, *KINDS_THAT_STAY) for outcome in outcomes.values())


def note_made_from(path: Path, digests: Digests, output: Path | None = None) -> None:
    """Write what an output was made from, after it. With `output` a change of that file by others shows as well."""
    write_json(path, {**digests, **({OUTPUT: file_digest(output)} if output else {})})


def what_changed(path: Path, digests: Digests, output: Path | None = None) -> list[str]:
    """Return which of the digests are others than those noted in `path`, all of them where nothing is noted there."""
    today = {**digests, **({OUTPUT: file_digest(output)} if output else {})}
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        noted = None
    if not isinstance(noted, dict):
        return ["everything, as far as is known"]
    return [name for name in {**today, **noted} if today.get(name) != noted.get(name)]


def drawn_changes(study: Study, kind: str, name: str, root: Path) -> list[str]:
    """Return what has changed since a table or figure of the study was written."""
    folder = study_folder(root / "results", study)
    digests = drawn_digests(kind, study.paper, folder / "measurements.csv", reference_path(study, root))
    return what_changed(made_from_path(folder, kind, name), digests)


def reference_path(study: Study, root: Path) -> Path | None:
    """Return the file of published numbers that a study names, if it names one."""
    return shipped(root, f"reference/{study.reference}.csv") if study.reference else None


def measurements_changes(study: Study, root: Path) -> list[str]:
    """Return what has changed since measurements.csv of the study was written; it must be there."""
    folder = study_folder(root / "results", study)
    path = made_from_path(folder, "measurements")
    return what_changed(path, measurements_digests(study, root), folder / "measurements.csv")


def change_note(folder: Path) -> Path:
    """Return a path in `folder` that no other call has, from which `left_notes` can tell whose it is."""
    return folder / f"{time.time_ns()}-{os.getpid()}-{host_name()}.txt"


def left_notes(folder: Path) -> list[Path]:
    """Return the change notes of this machine's calls that are gone: killed, they could not remove them."""
    left = []
    for path in folder.glob("*.txt"):
        _, pid, host = [*path.stem.split("-", 2), "", ""][:3]
        if host == host_name() and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            left.append(path)
    return left


def drawn_file(path: str) -> tuple[str, str, str, str] | None:
    """Return (system, study, kind, name) of a table, a figure or the measurements by the path of its file; None of any
    other path.
    """
    found = DRAWN_FILE.fullmatch(path)
    if not found:
        return None
    system, study, folder, name = found.groups()
    return system, study, folder.removesuffix("s") if folder else "measurements", name or ""


def _cells_digest(study: Study) -> str:
    """What the study plans on this system, with what keeps a cell from running."""
    planned = [
        [p.comparison, *p.key, p.cell.model.name, p.obstacle.reason if p.obstacle else ""] for p in study.planned
    ]
    scalings = [[c.name, c.scaling, c.baseline] for c in study.comparisons]
    return identity_hash({"planned": planned, "comparisons": scalings})
