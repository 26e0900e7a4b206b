"""What Slurm's words mean for a call that submits jobs and waits for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from launcher.slurm.queue import SlurmJob

# The controller is away, fails over, has too much to do, or was asked before it could answer; so is the database.
NO_ANSWER = re.compile(
    "|".join(
        (
            "Unable to contact slurm controller",
            "Socket timed out",
            "Zero Bytes were transmitted",
            "[Cc]onnection (refused|failure|timed out|reset)",
            "(send|receive|recv|shutdown) failure",
            "in standby mode",
            "temporarily un(able|available)",
            "Problem talking to the database",
        )
    )
)
# What the Slurm plugin says of a job that it could not submit, before the command line that it then prints.
REFUSAL = re.compile(r"The error message was '(.*?)'\. sbatch call: |Job submission failed with exception: (.*)")
CLOSED = re.compile("Required partition not available")
# So many jobs of a user, an account or a quality of service may be in the queue; Slurm names the limit.
FULL = re.compile(r"(Assoc|QOS)(Max|Grp)Submit\w*Limit")
TIME = "Lower the study's `time_limit_minutes`, or `slurm.job_overhead_minutes` of the system file"
# The reasons of a pending job that only a change ends: squeue(1), JOB REASON CODES.
NEVER: tuple[tuple[str, str], ...] = (
    ("PartitionTimeLimit", f"The partition allows less time. {TIME}, or name another `slurm.partition`."),
    (r"(QOS|Assoc)\w*Wall\w*PerJob\w*|QOSTimeLimit", f"The account or quality of service allows less time. {TIME}."),
    (
        "PartitionNodeLimit",
        "The partition gives no job so many nodes. Name another `slurm.partition`, or leave such cells out.",
    ),
    (
        r"(QOS|Assoc)Max\w*PerJob\w*|QOSMin\w*",
        "The account or quality of service gives no job so much. Name another `slurm.qos`, or leave such cells out of "
        "the study.",
    ),
    (
        "BadConstraints",
        "No node has what is asked for. Look at `slurm.constraint`, `slurm.gpu_type` and `gpus_per_node` of the system "
        "file (sinfo -o '%P %D %c %m %G %f' shows the nodes).",
    ),
    ("InvalidAccount|AccountNotAllowed", "Look at `slurm.account` of the system file."),
    ("InvalidQOS|QOSNotAllowed", "Look at `slurm.qos` of the system file."),
    ("ReservationDeleted", "Look at `slurm.reservation` of the system file."),
)


def refusal(message: str) -> str:
    """Return Slurm's words in what the Slurm plugin says of a job that it could not submit, in one line."""
    found = REFUSAL.search(" ".join(message.split()))
    return (found[1] or found[2]) if found else ""


def gives_no_answer(words: str) -> bool:
    return NO_ANSWER.search(words) is not None


def is_closed(words: str) -> bool:
    """Return whether a partition refuses jobs for a while (`State=INACTIVE` or `DRAIN`)."""
    return CLOSED.search(words) is not None


def is_full(words: str) -> bool:
    """Return whether Slurm takes no further job while so many are in the queue."""
    return FULL.search(words) is not None


def never_starts(job: SlurmJob) -> str:
    """Return in words why a waiting job can never start and what to change; nothing where it can."""
    if job.state != "PENDING":
        return ""
    return next((f"{job.reason}: {advice}" for reason, advice in NEVER if re.fullmatch(reason, job.reason)), "")


def unknown_job(comment: str, listed: Iterable[SlurmJob], known: Collection[str]) -> str:
    """Return the id of a job with this comment that is not among those known to be submitted, if there is one."""
    return next((job.job_id for job in listed if job.comment == comment and job.job_id not in known), "")
