"""Who holds Snakemake's lock on this folder: a note that its process writes, and whether that process is gone."""

from __future__ import annotations

import json
from pathlib import Path

from atomic import write_json
from launching.process_id import is_alive, this_process

# Of a project's folder. Snakemake keeps the locks, and says nothing in them of who made them.
LOCKS = Path(".snakemake") / "locks"
OWNER = Path(".snakemake") / "lock-owner.json"


def note_owner(folder: Path) -> None:
    """To be called by the process that has just locked `folder`."""
    write_json(folder / OWNER, this_process().as_dict())


def is_left_behind(folder: Path) -> bool:
    """Whether the folder is locked by a process of this machine that is certainly gone.

    A lock that is newer than the note is somebody else's, perhaps on another login node.
    """
    try:
        locked = [path.stat().st_mtime_ns for path in (folder / LOCKS).iterdir()]
        noted = (folder / OWNER).stat().st_mtime_ns
        owner = json.loads((folder / OWNER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(locked) and max(locked) <= noted and is_alive(owner) is False
