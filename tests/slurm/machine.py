"""What the Slurm sandbox needs of the machine: Slurm installed, and /etc/slurm free; ports; an end to processes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from debian import install_packages

# The default place, not SLURM_CONF: Snakemake's jobstep plugin takes that variable out of a job's environment.
ETC = Path("/etc/slurm")
CONFIG_FILES = ("slurm.conf", "gres.conf", "cgroup.conf")
# A link to the folder of the sandbox that the other links belong to. It still tells that when the folder is gone.
MARKER = "scaling-eval-sandbox"
SHIPPED = ("plugstack.conf", "plugstack.conf.d")  # by Debian's package; they configure nothing
MUNGE_FOLDERS = (Path("/run/munge"), Path("/var/log/munge"), Path("/var/lib/munge"))
PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "squeue", "scontrol", "munge", "munged")


class SandboxError(Exception):
    """Why there is no sandbox, or what did not happen in it."""


def install_slurm() -> str | None:
    """Install what is missing; the reason why there can be no sandbox here, or None when there can."""
    if os.geteuid() != 0:
        return "the Slurm sandbox needs root: munged runs as its own user, and /etc/slurm is written"
    if reason := other_slurm():
        return reason
    if missing := missing_programs():
        if not shutil.which("apt-get"):
            return f"the Slurm sandbox needs {', '.join(missing)}, and there is no apt-get to install them"
        failure = install_packages("slurm-wlm", "munge")
        if failure or missing_programs():
            return f"apt-get could not install Slurm for the sandbox: {failure or 'something is still missing'}"
    return None


def missing_programs() -> list[str]:
    return [program for program in PROGRAMS if not shutil.which(program)]


def other_slurm() -> str | None:
    """Signs of a Slurm that is no sandbox of ours. Such a machine is left alone."""
    if "SLURM_CONF" in os.environ:
        return f"SLURM_CONF names a Slurm that is no sandbox: {os.environ['SLURM_CONF']}"
    for program in ("slurmd", "squeue"):
        found = shutil.which(program)
        if found and not found.startswith(("/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/")):
            return f"{found} is not Debian's Slurm, and may not read /etc/slurm"
    sandbox = sandbox_in_etc()
    for file in sorted(ETC.glob("*")):
        ours = file.is_symlink() and sandbox in (file.readlink(), file.readlink().parent.parent)
        if file.name not in SHIPPED and not ours:
            return f"this machine has a Slurm of its own, which stays untouched: {file} is no link into a sandbox"
    return None


def sandbox_in_etc() -> Path | None:
    """The folder of the sandbox to which /etc/slurm leads."""
    marker = ETC / MARKER
    return marker.readlink() if marker.is_symlink() else None


def start_munged() -> int | None:
    """Its process, unless the machine has one that answers already."""
    if munge_answers():
        return None
    for folder in MUNGE_FOLDERS:
        folder.mkdir(exist_ok=True)
        shutil.chown(folder, "munge", "munge")
    null = subprocess.DEVNULL
    subprocess.run(
        ["munged"], user="munge", group="munge", extra_groups=(), stdin=null, stdout=null, stderr=null, timeout=30
    )
    deadline = time.monotonic() + 10
    while not munge_answers():
        if time.monotonic() > deadline:
            raise SandboxError("munged does not answer; it may say why in /var/log/munge/munged.log")
        time.sleep(0.1)
    return int((MUNGE_FOLDERS[0] / "munged.pid").read_text())


def munge_answers() -> bool:
    made = subprocess.run(["munge", "-n"], capture_output=True)
    return made.returncode == 0 and subprocess.run(["unmunge"], input=made.stdout, capture_output=True).returncode == 0


def free_ports(count: int) -> int:
    """The first of so many in a row, below those that the kernel gives to outgoing connections."""
    for first in random.sample(range(10000, 20000), 100):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("", port))
            return first
    raise SandboxError(f"no {count} free ports in a row")


def processes_that(
    fit: Callable[[psutil.Process], bool], among: Iterable[psutil.Process] | None = None
) -> list[psutil.Process]:
    """Without zombies: a container's init may leave them for a while."""
    found = []
    for process in psutil.process_iter() if among is None else among:
        with contextlib.suppress(psutil.Error):
            if fit(process) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end(processes: list[psutil.Process], patience_s: float = 0) -> None:
    """Kill them, after so long a time to end by themselves when asked; return when they are gone."""
    for method, wait_s in ((psutil.Process.terminate, patience_s), (psutil.Process.kill, 10.0)):
        if wait_s == 0:
            continue
        for process in processes:
            with contextlib.suppress(psutil.Error):
                method(process)
        deadline = time.monotonic() + wait_s
        while (processes := processes_that(psutil.Process.is_running, processes)) and time.monotonic() < deadline:
            time.sleep(0.02)
    if processes:
        raise SandboxError(f"could not be killed: {processes}")
