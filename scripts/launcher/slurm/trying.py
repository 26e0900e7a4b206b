"""Ask Slurm whether it would take the jobs of the missing cells, without submitting any (`sbatch --test-only`)."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from launcher.slurm.asking import QueueError, ask_slurm
from planning.job_resources import cell_resources
from planning.plan import Study, record_path, without_record
from settings.systems import SlurmSite

# Kinds of jobs that are asked about, those with most nodes first: each makes the controller look for nodes.
MOST_QUESTIONS = 12
# What sbatch says where the controller is not there to judge.
NO_JUDGEMENT = ("Unable to contact", "timed out", "gave no answer", "onnection")


def refused_lines(study: Study, results: Path, in_queue: Collection[Path]) -> list[str]:
    """Return what a dry run says of jobs that Slurm would refuse as they are, with Slurm's words."""
    site, name = study.system.slurm, study.system.name
    assert site is not None
    kinds: Counter[tuple[str, ...]] = Counter()
    nodes: dict[tuple[str, ...], int] = {}
    for planned in without_record(study, results):
        if record_path(results, name, planned) in in_queue:
            continue
        asked = cell_resources(site, planned.cell, 60 * study.limit_minutes(planned.cell))
        options = tuple(sbatch_options(site, asked))
        kinds[options] += 1
        nodes[options] = planned.cell.num_nodes
    lines = []
    for options in sorted(kinds, key=lambda options: -nodes[options])[:MOST_QUESTIONS]:
        try:
            ask_slurm(["sbatch", "--test-only", *options, "--wrap=true"])
        except QueueError as error:
            words = " ".join(str(error).split())
            if any(sign in words for sign in NO_JUDGEMENT):
                return [*lines, f"whether Slurm would take these jobs is not known: {words}"]
            count = f"{kinds[options]} job{'s' if kinds[options] > 1 else ''}"
            what = f"{nodes[options]} node{'s' if nodes[options] > 1 else ''}"
            lines.append(f"{count} of {what} would be refused as things stand: {words} (asked: {' '.join(options)})")
    return lines


def sbatch_options(site: SlurmSite, asked: dict[str, Any]) -> list[str]:
    """Return what a cell asks for, as options of sbatch. asked: `cell_resources`."""
    named = {
        "partition": site.partition,
        "account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        "nodes": asked["nodes"],
        "gres": asked["gres"],
        "cpus-per-task": asked["threads"],
        "mem": asked["mem"] and asked["mem"].removesuffix(" MB"),
        "time": asked["runtime"],
    }
    return [*(f"--{key}={value}" for key, value in named.items() if value), *shlex.split(asked["slurm_extra"])]
