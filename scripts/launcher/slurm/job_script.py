"""The script that a Slurm job runs: a rule's own command, fixed when the job is submitted."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

# What a job is told of itself. Everything else that Slurm or the login shell sets for its programs would be taken by
# srun for an option that was not given, such as the number of tasks.
KEPT = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_CONF", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST")


def job_script(command: str, python_folder: str, needed: Sequence[str], patience_s: float) -> str:
    """Return a script for `sh` that runs a command of bash, as Snakemake would.

    python_folder: where the `python` of the command is. needed: files that a shared file system may show late on a
    node; for so many seconds they are waited for, and then the command says by itself what is not there.
    """
    lines = [
        "set -euo pipefail",
        "for name in ${!SLURM_@} ${!SRUN_@} ${!SBATCH_@}; do",
        f'    case "$name" in {"|".join(KEPT)}) ;; *) unset "$name" ;; esac',
        "done",
        f"export PATH={shlex.quote(python_folder)}:$PATH",
        f"for file in {' '.join(map(shlex.quote, needed))}; do",
        f'    until [ -e "$file" ] || [ "$SECONDS" -ge {patience_s:.0f} ]; do sleep 1; done',
        "done",
        command,
    ]
    return f"exec bash -c {shlex.quote(chr(10).join(lines))}"
