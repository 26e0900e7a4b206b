"""The Pythons of frameworks that cannot use the workflow's own: which file names one, and whether it is to be made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from snakemake.io import ancient

from contracts.project_files import shipped, shown
from planning.adaptors import environment_digest
from workflow_support.call import Call
from workflow_support.messages import explained

FOLDER = Path("environments")


class Environments:
    """The environments that this call's cells need."""

    def __init__(self, call: Call, note: str) -> None:
        """note: the input that a rule gets whose output is to be made anew (workflow_support/changes.py)."""
        self._call, self._note = call, note
        self._found: dict[tuple[str, str], list[str]] = {}

    def file(self, name: str) -> Any:
        """Return a file of envs/ as an input whose age does not matter: what has changed is found by its content."""
        return ancient(shown(shipped(self._call.root, f"envs/{name}"), self._call.root))

    def folder(self, name: str) -> str:
        """Return the folder of a virtual environment, named by what its files hold and not by their times."""
        return f"{FOLDER}/venv-{name}/{explained(environment_digest, name, self._call.root)}"

    def changes(self, name: str, kind: str) -> list[str]:
        """Return the note of the changes where a Python is to be made anew: where it is gone, or where it was made from
        another state of the environment's files.
        """
        if (name, kind) not in self._found:
            self._found[name, kind] = self._find_changes(name, kind)
        return self._found[name, kind]

    def _find_changes(self, name: str, kind: str) -> list[str]:
        noted = FOLDER / f"{kind}-{name}.txt"
        # A job makes no environment: its launcher says what is wrong with the one that is there.
        if not self._call.is_main or not noted.is_file():
            return []
        # The path is relative to the project where it lies in it.
        python = Path.cwd() / noted.read_text(encoding="utf-8").strip()
        is_right = kind != "venv" or python == Path.cwd() / self.folder(name) / "bin" / "python"
        return [] if is_right and python.is_file() else [self._note]
