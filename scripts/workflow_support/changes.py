"""Tell rules what is to be made anew: missing records, and outputs whose sources have changed since.

Snakemake compares time stamps whatever `rerun-triggers` says, and what it remembers lies in `.snakemake`, which results
that were copied lack. So what has changed is found by digests (reporting/made_from.py), and a rule with a changed
source gets one more input, which is no file yet: the note that the rule `note_changes` writes, once in a call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from snakemake.io import ancient
from snakemake.logging import logger

from contracts.project_files import shown
from planning.plan import Study, record_path, study_folder, without_record
from reporting.made_from import change_note, drawn_changes, left_notes, measurements_changes, reference_path
from workflow_support.call import RESULTS, Call
from workflow_support.messages import tell

NOTES = RESULTS / "changes"
Changes = dict[tuple[str, str], list[str]]


class OutputChanges:
    """Which outputs of this call's studies are to be made, and why."""

    def __init__(self, call: Call) -> None:
        self._call = call
        # Another path in each call, so that it is never there already.
        self.note = change_note(NOTES).as_posix()
        self._missing: dict[tuple[str, str], list[Path]] = {}
        self._found: dict[tuple[str, str, str, str], list[str]] = {}
        self._told: set[str] = set()

    def missing_records(self, name: str, system: str) -> list[Path]:
        """Return the records that a study has still to get, as this call found it.

        Records that are there are inputs of nothing. So no job is ever considered for one, whatever Snakemake finds
        changed, and it is never deleted.
        """
        if (name, system) not in self._missing:
            study = self._call.study(name, system)
            self._missing[name, system] = [record_path(RESULTS, system, p) for p in without_record(study, RESULTS)]
        return self._missing[name, system]

    def found(self, name: str, system: str, kind: str, output: str = "") -> list[str]:
        """Return what has changed since an output of a study was made.

        kind: measurements, table or figure. Nothing is returned where Snakemake sees by itself that the output is to be
        made, since it is not there or not whole, and where it is made anew with the measurements before it.
        """
        key = (name, system, kind, output)
        if key not in self._found:
            self._found[key] = self._find(*key)
        return self._found[key]

    def _find(self, name: str, system: str, kind: str, output: str) -> list[str]:
        study, root = self._call.study(name, system), self._call.root
        folder = study_folder(RESULTS, study)
        if not (folder / "measurements.csv").is_file() or self.missing_records(name, system):
            return []
        if kind == "measurements":
            return measurements_changes(study, root)
        return [] if self.found(name, system, "measurements") else drawn_changes(study, kind, output, root)

    def changed_outputs(self, study: Study) -> Changes:
        """Return what has changed, by kind and name of the output, of all outputs that will be made anew."""
        outputs = [("measurements", "")]
        outputs += [
            (kind, name) for kind, names in (("table", study.tables), ("figure", study.figures)) for name in names
        ]
        changes = {output: self.found(study.name, study.system.name, *output) for output in outputs}
        return {output: found for output, found in changes.items() if found}

    def tell(self, study: Study) -> None:
        """Say which outputs that are there will be made anew, and what has changed since they were made."""
        for (kind, name), changes in self.changed_outputs(study).items():
            tell(f"{study.name}: {f'{kind} {name}'.strip()} made anew; changed since: {', '.join(changes)}")

    # Input functions of rules.

    def measurements_missing(self, wildcards: Any) -> list[Path]:
        """Return the records that measurements.csv waits for."""
        return self.missing_records(wildcards.study, wildcards.system)

    def of_measurements(self, wildcards: Any) -> list[str]:
        """Return the note of the changes where measurements.csv is to be made anew."""
        self._tell_of_stale(f"{folder_of(wildcards)}/measurements.csv", wildcards, "measurements", "")
        return [self.note] if self.found(wildcards.study, wildcards.system, "measurements") else []

    def of(self, kind: str, suffixes: tuple[str, ...]) -> Callable[[Any], list[str]]:
        """Return the input function of a rule that makes tables or figures (`kind`) with these ends of file names."""

        def changes(wildcards: Any) -> list[str]:
            name = getattr(wildcards, kind)
            for suffix in suffixes:
                self._tell_of_stale(f"{folder_of(wildcards)}/{kind}s/{name}{suffix}", wildcards, kind, name)
            return [self.note] if self.found(wildcards.study, wildcards.system, kind, name) else []

        return changes

    def measurements(self, wildcards: Any) -> Any:
        """Return a study's measurements as an input: of whatever age, unless this call makes them, and then always."""
        path = f"{folder_of(wildcards)}/measurements.csv"
        name, system = wildcards.study, wildcards.system
        is_made = self.missing_records(name, system) or self.found(name, system, "measurements")
        return path if is_made else ancient(path)

    def reference(self, wildcards: Any) -> list[Any]:
        """Return the file of published numbers that a study names, if it names one."""
        path = reference_path(self._call.study(wildcards.study, wildcards.system), self._call.root)
        return [ancient(shown(path, self._call.root))] if path else []

    def _tell_of_stale(self, path: str, wildcards: Any, kind: str, output: str) -> None:
        """Say that a file which is asked for by its path stays as it is, though what it was made from has changed.

        Snakemake makes no missing input for a file that is there, so only a study has the note of the changes made.
        """
        if path in self._told or not self._call.asks_for_file(path) or not Path(path).is_file():
            return
        self._told.add(path)
        name, system = wildcards.study, wildcards.system
        changes = self.found(name, system, "measurements") or self.found(name, system, kind, output)
        changes = ["records are missing"] if self.missing_records(name, system) else changes
        if changes:
            logger.warning(
                f"{path} stays as it is, though what it was made from has changed ({', '.join(changes)}): ask for "
                f"the study ({name}) to have it made anew"
            )

    # The notes.

    def remove_left_notes(self) -> None:
        """Remove the notes of calls that were killed."""
        for path in left_notes(NOTES):
            path.unlink(missing_ok=True)

    def remove_note(self) -> None:
        """Remove this call's note, which only its own rules have looked at."""
        Path(self.note).unlink(missing_ok=True)
        with suppress(OSError):  # another call is at work beside this one
            NOTES.rmdir()


def folder_of(wildcards: Any) -> str:
    """Return the folder of a study's outputs."""
    return f"{RESULTS}/{wildcards.system}/{wildcards.study}"
