"""Debian's packages for tests, where root may install them: one installation at a time."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path


def install_packages(*names: str) -> str:
    """Install packages without what they only recommend; the last words of apt-get where it fails, else nothing.

    Two processes of the tests may each want some at once, and apt-get does not wait for another's renewed lists.
    """
    with Path(__file__).open() as lock:  # a file that is there anyway: nothing is left behind
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Whether the package lists could be renewed shows in the installation: old ones may do.
        _apt_get("update", "-q")
        done = _apt_get("install", "-yq", "--no-install-recommends", *names)
    return (done.stdout.strip().splitlines() or ["no output"])[-1] if done.returncode else ""


def _apt_get(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["apt-get", "-o", "DPkg::Lock::Timeout=120", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
