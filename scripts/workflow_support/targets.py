"""The targets of a study, and what a cell that is to be measured needs before it starts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from launcher.interpreter import interpreter_file
from launcher.run_lock import locked_outputs, refusal
from planning.plan import study_folder
from reporting.figure_forms import file_endings
from workflow_support.call import RESULTS, Call
from workflow_support.changes import OutputChanges
from workflow_support.environments import Environments
from workflow_support.messages import stop
from workflow_support.plan_messages import PlanMessages
from workflow_support.refusals import check_study

TABLE_SUFFIXES = (".csv", ".md", ".tex")
FIGURE_SUFFIXES = tuple(file_endings())


class Targets:
    """Input functions of the studies' rules and of the rule that trains."""

    def __init__(self, call: Call, changes: OutputChanges, environments: Environments, messages: PlanMessages) -> None:
        self._call, self._changes, self._environments, self._messages = call, changes, environments, messages
        self._checked: set[str] = set()
        self._locked: frozenset[str] | None = None

    def of_all(self, _wildcards: Any = None) -> list[Any]:
        """Return all that the studies of config/config.yaml ask for."""
        return [path for name in self._call.settings["studies"] for path in self.of_study(name)]

    def of_study(self, name: str, _wildcards: Any = None) -> list[Any]:
        """Return all that a study asks for, its missing records too: a table made without one must not hide it."""
        call, changes = self._call, self._changes
        self._check_together(name)
        study = call.study(name)
        if study not in call.requested:
            self._messages.tell_plan(study)
            changes.tell(study)
        if not study.runnable():
            return []
        if study not in call.requested:
            call.requested.append(study)
        folder = study_folder(RESULTS, study)
        targets = [
            *changes.missing_records(study.name, study.system.name),
            folder / "measurements.csv",
            # With all their formats: one that a killed call left out is made again.
            *(folder / "tables" / f"{table}{suffix}" for table in study.tables for suffix in TABLE_SUFFIXES),
            *(folder / "figures" / f"{figure}{suffix}" for figure in study.figures for suffix in FIGURE_SUFFIXES),
        ]
        self._refuse_beside_others(targets)
        # The note is asked for here as well: Snakemake makes no missing input for a rule that has nothing else to do.
        return [*targets, *([changes.note] if changes.changed_outputs(study) else [])]

    def _check_together(self, name: str) -> None:
        """Check all studies that are asked for with this one, and say what they will take, before any other message."""
        if name in self._checked:
            return
        asked = self._call.asked_names()
        # A study whose rule has another name, in a workflow that uses this one as a module, is looked at by itself.
        together = asked if name in asked else [name]
        self._checked.update(together)
        for one in together:
            check_study(self._call, one)
        for one in together:
            self._messages.tell_budget(self._call.study(one))

    def needed_to_train(self, wildcards: Any) -> list[str]:
        """Return a cell's tokens (the file and the JSON beside it) and its framework's Python; nothing where it has its
        record.

        The tokens are not ancient(): Snakemake leaves out a job with a missing output when an ancient input of it is
        there and made anew.
        """
        w, call = wildcards, self._call
        folder = f"{RESULTS}/{w.system}/cells/{w.framework}/{w.model}/{w.num_gpus}gpu/{w.cell_id}/repeat{w.repeat}"
        if os.path.isfile(f"{folder}/record.json"):  # noqa: PTH113  (10,000 times; a Path costs more)
            return []
        name = call.cell_value(wildcards, "environment")
        source = call.system(w.system).environment_source(name)
        interpreter = interpreter_file(name, source)
        facts = call.cell_value(wildcards, "tokens")
        needed = [facts, str(Path(facts).with_suffix(".bin")), *([interpreter] if interpreter else [])]
        self._refuse_beside_others(needed)
        return [*needed, *self._environments.changes(name, source.kind)]

    def _refuse_beside_others(self, paths: Iterable[Any]) -> None:
        """End this call where another one in this folder makes what it wants. Snakemake would refuse it too, a moment
        later, and advise to take the lock away by force.
        """
        if self._locked is None:
            workflow = self._call.workflow
            takes_lock = self._call.is_main and workflow.executor_plugin and workflow.execution_settings.lock
            self._locked = locked_outputs(Path.cwd()) if takes_lock and not workflow.dryrun else frozenset()
        if not self._locked.isdisjoint(map(str, paths)):
            stop(refusal(Path.cwd()))
