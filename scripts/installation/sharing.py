"""Have environments share on disk what they have in common: uv's cache on their file system, and what each adds to it.

A file of a package is one file with several names (hard links): one in uv's cache and one in each environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OWN_CACHE = ".uv-cache"  # in the checkout, ignored by git


@dataclass(frozen=True)
class Sharing:
    """Variables of uv: where its cache lies, how files get from there; and the reason, where files cannot be shared."""

    variables: Mapping[str, str]
    reason_against: str = ""


@dataclass(frozen=True)
class DiskUse:
    """What an environment takes on disk: what only it has, and what other environments have too."""

    own_bytes: int
    shared_bytes: int


def choose_sharing(uv: Sequence[str], target: Path, checkout: Path, environment: Mapping[str, str]) -> Sharing:
    """Choose uv's cache for an environment in the folder `target`.

    uv's own cache, which other checkouts share too, where its files can be linked into `target`; else one in the
    checkout: a home folder often lies on another file system. What the user has set is left as it is.
    """
    if environment.get("UV_NO_CACHE") or environment.get("UV_LINK_MODE"):
        return Sharing({}, "uv's variables UV_NO_CACHE and UV_LINK_MODE decide whether packages are shared")
    said = subprocess.run([*uv, "cache", "dir"], capture_output=True, text=True)
    folders = [Path(said.stdout.strip())] if said.returncode == 0 and said.stdout.strip() else []
    if not environment.get("UV_CACHE_DIR"):
        folders.append(checkout / OWN_CACHE)
    for folder in folders:
        if can_link(folder, target):
            return Sharing({"UV_CACHE_DIR": str(folder), "UV_LINK_MODE": "hardlink"})
    where = "from the cache that UV_CACHE_DIR names" if environment.get("UV_CACHE_DIR") else "on this file system"
    return Sharing(
        {"UV_LINK_MODE": "copy"}, f"hard links cannot be made {where}, so the environment holds copies of its packages"
    )


def can_link(source: Path, target: Path) -> bool:
    """Return whether a file in the folder `source`, which is made where it is missing, can be linked into `target`."""
    try:
        source.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=source) as file, tempfile.TemporaryDirectory(dir=target) as folder:
            os.link(file.name, Path(folder) / "link")
    except OSError:
        return False
    return True


def disk_use(folder: Path) -> DiskUse:
    """Add up what lies in an environment. A file whose only other name is in uv's cache is the environment's own."""
    names: dict[tuple[int, int], int] = {}
    facts: dict[tuple[int, int], os.stat_result] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            status = (Path(parent) / name).lstat()
            key = (status.st_dev, status.st_ino)
            names[key] = names.get(key, 0) + 1
            facts[key] = status
    own = shared = 0
    for key, status in facts.items():
        size_bytes = status.st_blocks * 512
        if os.path.stat.S_ISREG(status.st_mode) and status.st_nlink - names[key] > 1:
            shared += size_bytes
        else:
            own += size_bytes
    return DiskUse(own, shared)


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free
