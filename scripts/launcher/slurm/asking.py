"""Ask Slurm something, so that the answer is the same in every shell of every user."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

TIMEOUT_S = 60
# Variables by which a shell narrows, sorts or writes otherwise what these programs show (squeue(1), sacct(1), sinfo(1),
# scontrol(1)). With SQUEUE_PARTITION a cell that runs in another partition would be submitted and measured twice.
PREFIXES = ("SQUEUE_", "SACCT_", "SINFO_", "SACCTMGR_", "SCONTROL_")
NAMES = frozenset({"SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN", "SLURM_DEBUG_FLAGS"})


class QueueError(Exception):
    """Slurm could not be asked; the message says what it answered."""


def asking_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment without what changes answers. What says which Slurm is asked stays, SLURM_CLUSTERS too:
    sbatch submits there.
    """
    return {name: value for name, value in environment.items() if not (name.startswith(PREFIXES) or name in NAMES)}


def this_user() -> str:
    """Return the user by number: a name would be taken from LOGNAME or USER, which anybody may set."""
    return str(os.getuid())


def ask_slurm(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> str:
    """Return what one of Slurm's programs prints. Raises QueueError."""
    try:
        done = subprocess.run(
            list(command), env=asking_environment(), capture_output=True, text=True, timeout=timeout_s, check=True
        )
    except subprocess.CalledProcessError as error:
        raise QueueError(f"{command[0]} says: {(error.stderr or error.stdout).strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QueueError(f"{command[0]} gave no answer: {error}") from None
    return done.stdout
