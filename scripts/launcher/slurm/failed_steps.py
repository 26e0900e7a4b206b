"""Why cells never came to run: their job was refused, or a step before them failed. Told by Snakemake's own log alone.

What is found is kept beside the cells, where the tables and status.py look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from contracts.outcomes import EndKind
from contracts.placement import host_name
from launcher.interpreter import interpreter_file
from launcher.slurm.queue import ended_without_word, slurm_log
from launcher.verdicts import Failure, kept_failure, log_tail, now, read_failure
from planning.plan import Study, record_path, without_record

# One error as Snakemake writes it: `Error in rule x:`, then indented lines `key: value`; a message may go on without
# being indented. It ends where the time of the next event stands.
ERROR = re.compile(
    r"^Error in rule (?P<rule>\w+):\n(?P<lines>(?:(?!Error in rule |\[\w{3} \w{3} ).*\n)*)", re.MULTILINE
)
MESSAGE = re.compile(r"^    message: (?P<words>(?s:.*?))(?=^    [a-z]+[a-z ]*:|\Z)", re.MULTILINE)
ADDED_WORDS = "For further error details see the cluster/cloud log and the log files of the involved rule(s)."
# What the Slurm plugin says of a job that it could not submit; an unknown account it finds before sbatch does.
REFUSED = (
    re.compile(r"SLURM sbatch failed\. The error message was '(?P<words>.*)'\."),
    re.compile(r"Job submission failed with exception: (?P<words>.*)"),
    re.compile(r"Slurm can never start the job: (?P<words>.*)"),
)
# What our executor says of a job of which nobody knows how it ended.
FORGOTTEN = re.compile(r"Slurm job (?P<job>\d+): it has ended, Slurm has forgotten how, .*")
LAST_WORDS_LIMIT = 500


@dataclass(frozen=True)
class StepError:
    """A job of Snakemake that failed: its rule, what was said of it, and its files as far as they are named."""

    rule: str
    message: str
    outputs: tuple[Path, ...]
    log: Path | None

    @property
    def refusal(self) -> str:
        """Return the scheduler's words where the job was never submitted, else an empty text."""
        found = (pattern.fullmatch(self.message) for pattern in REFUSED)
        return next((match["words"].strip() for match in found if match), "")

    @property
    def forgotten_job(self) -> str:
        """Return the id of a job that Slurm has forgotten and that left no result, else an empty text."""
        found = FORGOTTEN.fullmatch(self.message)
        return found["job"] if found else ""


def step_errors(log: str) -> list[StepError]:
    """Return the failed jobs of which a Snakemake log tells."""
    return [_step_error(found["rule"], found["lines"]) for found in ERROR.finditer(log)]


def note_failed_steps(study: Study, logs: Iterable[Path], root: Path) -> dict[tuple[str, int], Failure]:
    """Give every cell without a record the reason that stands in the logs of this call, where it never came to run.

    Return these reasons by the cells' keys: where the disk is full they are kept nowhere else.
    """
    errors = [error for path in logs for error in step_errors(_text(path))]
    results = root / "results"
    reasons = cell_reasons(study, errors, root)
    noted = {}
    for planned in without_record(study, results):
        folder = record_path(results, study.system.name, planned).parent
        former = read_failure(folder)
        failure = reasons.get(planned.key)
        if failure is None or (former and (former.is_running or (failure.job_id and former.job_id == failure.job_id))):
            continue
        noted[planned.key] = kept_failure(folder, failure)
    return noted


Reasons = Mapping[tuple[str, int], Failure]


def cell_reasons(study: Study, errors: Iterable[StepError], root: Path) -> Reasons:
    """Return why cells of the study have no record, by the cells' keys: those that never came to run, and those of
    whose end Slurm knows nothing.
    """
    by_output = {output: error for error in errors for output in error.outputs}
    tokens = Path(f"results/tokens/{study.corpus.key}/train.json")
    reasons = {}
    for planned in study.runnable():
        framework = planned.cell.framework
        environment = study.environments[framework]
        note = interpreter_file(environment, study.system.environment_source(environment))
        own = by_output.get(record_path(Path("results"), study.system.name, planned))
        if own and own.refusal:
            reasons[planned.key] = _failure(EndKind.REFUSED, f"Slurm refused the job: {own.refusal}")
        elif own and own.forgotten_job:
            lines = log_tail(slurm_log(root / "results", study.system.name, planned, own.forgotten_job))
            reason = ended_without_word(lines)
            reasons[planned.key] = _failure(EndKind.INTERRUPTED, reason, lines, own.forgotten_job)
        elif tokens in by_output:
            words, lines = _last_words(by_output[tokens], root)
            reasons[planned.key] = _failure(EndKind.CORPUS_FAILED, f"the corpus could not be tokenized: {words}", lines)
        elif note and Path(note) in by_output:
            words, lines = _last_words(by_output[Path(note)], root)
            reason = f"the environment {environment} of {framework} could not be made: {words}"
            reasons[planned.key] = _failure(EndKind.ENVIRONMENT_FAILED, reason, lines)
    return reasons


def _failure(kind: str, reason: str, lines: tuple[str, ...] = (), job_id: str | None = None) -> Failure:
    return Failure(kind, reason, None, lines, now(), host_name(), job_id)


def _last_words(error: StepError, root: Path) -> tuple[str, tuple[str, ...]]:
    """Return what a failed step said last, and its last lines."""
    if error.refusal:
        return f"Slurm refused the job: {error.refusal}", ()
    lines = log_tail(root / error.log) if error.log else ()
    said = next((line.strip() for line in reversed(lines) if line.strip()), error.message or "it did not say why")
    where = f" ({error.log})" if error.log else ""
    return f"{said[:LAST_WORDS_LIMIT]}{where}", lines


def _step_error(rule: str, lines: str) -> StepError:
    message = MESSAGE.search(lines)
    words = " ".join(message["words"].replace(ADDED_WORDS, " ").split()) if message else ""
    log = re.search(r"^    log: (.*?)(?: \(check log file\(s\) for error details\))?$", lines, re.MULTILINE)
    outputs = re.search(r"^    output: (.*)$", lines, re.MULTILINE)
    names = outputs[1].split(", ") if outputs else []
    # Snakemake appends the flags of an output, such as `(update)`.
    paths = tuple(Path(re.sub(r" \([a-z, ]+\)$", "", name)) for name in names)
    return StepError(rule, words, paths, Path(log[1].split(", ")[0]) if log else None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
