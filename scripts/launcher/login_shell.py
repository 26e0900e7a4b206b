"""Variables of the shell that would change what is measured, and that no rank gets from there.

A line that somebody once wrote into a shell's start file (OMP_PROC_BIND=true made a batch 1.8 times longer) is nothing
that a record of the system should depend on. Ranks have what the launcher gives, what the system file says in
`environment` and `setup`, and what the scheduler sets for its steps.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from contracts.inherited import SNAKEMAKE, tells_a_place
from workloads.process_facts import PREFIXES

# All of CUDA's, where a record notes only those that are known to change speed.
SETTINGS = (*PREFIXES, "CUDA_")
# What a variable only locates or describes is known by how its name ends: CUDA_HOME, NCCL_ROOT, TORCH_EXTENSIONS_DIR.
LOCATING = frozenset({"HOME", "PATH", "ROOT", "DIR", "PREFIX", "INCLUDE", "LIB", "LIBRARY", "BIN", "VERSION"})
# Terraform's, which begin as TensorFlow's do.
OF_OTHERS = ("TF_CLI_", "TF_VAR_", "TF_LOG", "TF_WORKSPACE", "TF_INPUT", "TF_DATA_", "TF_PLUGIN_")
# A user's choice of GPUs on a machine of one's own. Slurm's is made anew for each step.
CHOICE_OF_GPUS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


def changes_measurement(name: str, *, in_slurm: bool) -> bool:
    """Return whether a variable of a shell is one that no rank inherits."""
    if not name.startswith(SETTINGS) or name.startswith(OF_OTHERS) or name.upper().split("_")[-1] in LOCATING:
        return False
    return in_slurm or name not in CHOICE_OF_GPUS


def without_shell_settings(environment: Mapping[str, str], *, in_slurm: bool) -> dict[str, str]:
    """Return what of a shell's environment may reach a rank.

    In a Slurm job it is applied before srun and not after it: what a rank has beyond that, Slurm has set for the step
    (the GPUs, and what a site's task prolog exports).
    """
    return {name: value for name, value in environment.items() if not changes_measurement(name, in_slurm=in_slurm)}


def dropped_settings(given: Collection[str], *, in_slurm: bool, environment: Mapping[str, str] = os.environ) -> str:
    """Return the sentence that names what the shell has set in vain, or "".

    given: the variables that the launcher and the system file set, whose shell's value would not have counted anyway.
    """
    names = sorted(
        name
        for name in environment
        if changes_measurement(name, in_slurm=in_slurm)
        and not (name in given or name in CHOICE_OF_GPUS or tells_a_place(name))
        and not any(family.holds(name) for family in SNAKEMAKE)
    )
    if not names:
        return ""
    return (
        f"set in the shell and kept from the training processes, whose speed may depend on it: {', '.join(names)} "
        f"(what a system needs is named in its file, under `environment` or `setup`)"
    )
