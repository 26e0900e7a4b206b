"""Write a drafted system file, and say what a person has still to look at in it."""

from __future__ import annotations

from pathlib import Path

from contracts.atomic import replace_when_complete
from contracts.errors import ConfigError
from describing.answers import ask_for_answers, read_answers
from describing.draft import MARK, draft_of
from describing.site import site_of
from planning.studies import CLUSTER, load_hardware, load_system


def write_draft(system: str, partition: str | None, answers: Path | None, root: Path) -> str:
    """Write config/systems/<system>.yaml, and return what to do next.

    answers: a folder with Slurm's answers as texts, in place of asking it. Raises ConfigError where the file is there
    already or Slurm does not say enough; a file that is there is never replaced.
    """
    path = root / "config" / "systems" / f"{system}.yaml"
    if path.exists():
        raise ConfigError(f"{path.relative_to(root)} is there and stays; give another name with --system")
    said = read_answers(answers) if answers else ask_for_answers()
    draft = draft_of(site_of(said, partition), load_hardware(root))
    with replace_when_complete(path) as file:
        file.write(draft.text)
    load_system(system, root)
    named = "" if system == CLUSTER else f" --config system={system}"
    return "\n".join(
        [
            f"written: {path.relative_to(root)}; {MARK}, so look at these lines in it:",
            *(f"    {marked}" for marked in draft.marked),
            f"then see what it would cost: snakemake --profile slurm -n{named}",
        ]
    )
