"""The control groups that this process is in, whose limits hold for it whatever the host has (Linux, both versions)."""

from __future__ import annotations

from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
MOUNTS = Path("/sys/fs/cgroup")


def group_folders(controller: str, membership: Path = MEMBERSHIP, mounts: Path = MOUNTS) -> list[Path]:
    """Return the folders of the groups that limit this process, its own first and the root last, of both versions.

    Every group on the way to the root limits it. In a container the path may be the host's, of which nothing is to be
    seen; then the folder of the mount is the container's own group.
    """
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            mount = mounts / controller
        elif number == "0" and not controllers:
            mount = mounts if (mounts / "cgroup.controllers").exists() else mounts / "unified"
        else:
            continue
        own = mount / path.lstrip("/")
        chain = [own, *own.parents]
        folders += [folder for folder in chain if folder.is_relative_to(mount) and folder.is_dir()]
    return folders
