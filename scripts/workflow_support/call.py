"""One call of Snakemake on this workflow: its settings, the studies that it asks for, and the values of their cells."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from contracts.errors import ConfigError
from launcher.slurm.queue import SlurmJob
from planning.plan import Study, index_cells
from planning.studies import load_hardware, load_study, load_system, study_names
from settings.config import check_config, read_config
from settings.systems import System
from workflow_support.messages import explained, stop

RESULTS = Path("results")
# Tells a job which studies the call that submitted it was about: a cell may be in several, with several time limits.
ASKED_VARIABLE = "SCALING_EVAL_STUDIES"


def read_settings(root: Path, overrides: Mapping[str, Any], is_module: bool = False) -> dict[str, Any]:
    """Return config/config.yaml with `overrides` in place of its values.

    overrides: what --config and --configfile say; where this workflow is somebody's module, what its `config:` says,
    which then is all, since config/config.yaml may be of that other workflow.

    Snakemake's own `configfile:` is not used: it evaluates expressions in the file, takes the last of a key that is
    given twice, and names no line in its messages.
    """
    if is_module and overrides:
        return check_config(dict(overrides), "config", root, "config: of the module")
    in_file = read_config(root / "config" / "config.yaml", "config", root)
    where = "--config or --configfile"
    return check_config({**in_file, **overrides}, "config", root, where) if overrides else in_file


class Call:
    """What one call of Snakemake asks for, as far as the rules, the messages and the hooks need to know it.

    Nothing is read before somebody asks for it, except for config/config.yaml.
    """

    def __init__(self, workflow: Any, root: Path, overrides: Mapping[str, Any], is_module: bool = False) -> None:
        self.workflow = workflow
        # The folder that holds config/ and results/: Snakemake's working directory.
        self.root = root
        self.settings = explained(read_settings, root, overrides, is_module)
        self.system_name: str = self.settings["system"]
        # The studies whose targets this call has asked for, in that order.
        self.requested: list[Study] = []
        # Slurm jobs of an earlier call that are still in the queue, by the record that each will write.
        self.jobs_in_queue: dict[Path, SlurmJob] = {}
        # Why Slurm could not be asked for them, if it could not.
        self.queue_errors: list[str] = []
        self._studies: dict[tuple[str, str], Study] = {}
        self._systems: dict[str, System] = {}
        self._cells: dict[str, dict[str, dict[str, Any]]] = {}
        self._corpora: dict[str, str] = {}

    # What is asked for.

    @property
    def is_main(self) -> bool:
        """Return whether this is the call itself and not one that Snakemake has started for a job."""
        return bool(self.workflow.is_main_process)

    def asked_names(self) -> list[str]:
        """Return the names of the studies that this call asks for; known once Snakemake makes its plan."""
        # While Snakemake reads the Snakefile, the targets are not known yet: this is for input functions and hooks.
        targets = self.workflow.dag_settings.targets
        default = self.settings["studies"] if not targets or "all" in targets else []
        named = [name for name in study_names(self.root) if name in targets]
        return list(dict.fromkeys([*named, *default]))

    def asks_for_file(self, path: str) -> bool:
        """Return whether this call asks for a file by its path."""
        return path in self.workflow.dag_settings.targets

    # What is read.

    def read_study(self, name: str, system: str) -> Study:
        """Return a study; ConfigError where a file that it needs is wrong."""
        if (name, system) not in self._studies:
            self._studies[name, system] = load_study(name, system, self.root)
        return self._studies[name, system]

    def study(self, name: str, system: str | None = None) -> Study:
        """Return a study, or end this call with what is wrong in a file that it needs."""
        return explained(self.read_study, name, system or self.system_name)

    def system(self, name: str | None = None) -> System:
        """Return a system, by default the one of this call, or end this call with what is wrong in its file."""
        name = name or self.system_name
        if name not in self._systems:
            self._systems[name] = explained(load_system, name, self.root)
        return self._systems[name]

    def hardware(self) -> dict[str, Any]:
        """Return config/hardware.yaml, or end this call with what is wrong in it."""
        return explained(load_hardware, self.root)

    def readable_studies(self, system: str, names: Iterable[str] | None = None) -> list[Study]:
        """Return the studies of these names, or all, that can be read: a mistake in one costs no cell of another."""
        found = []
        for name in study_names(self.root) if names is None else names:
            try:
                found.append(self.read_study(name, system))
            except ConfigError as error:
                logger.debug(f"not read: {error}")
        return found

    def asked_studies(self, system: str) -> list[Study]:
        """Return the studies of this call: in a job, those of the call that submitted it; all where files are asked
        for.
        """
        asked = [study for study in self.requested if study.system.name == system]
        if not asked and not self.is_main:
            asked = self.readable_studies(system, os.environ.get(ASKED_VARIABLE, "").split())
        return asked or self.readable_studies(system)

    # What rules take from it.

    def cell_value(self, wildcards: Any, key: str) -> Any:
        """Return one of a cell's values, by the id in its path."""
        if wildcards.system not in self._cells:
            self._cells[wildcards.system] = index_cells(self.asked_studies(wildcards.system))
        cells = self._cells[wildcards.system]
        if wildcards.cell_id not in cells:
            stop(
                f"cell {wildcards.cell_id} is in no study of config/studies that can be read on system "
                f"{wildcards.system}"
            )
        return cells[wildcards.cell_id][key]

    def corpus_setting(self, key: str) -> str:
        """Return what the command line of the tokenizer says for a corpus, by the name of its folder."""
        if key not in self._corpora:
            studies = self.asked_studies(self.system_name)
            self._corpora = {study.corpus.key: _as_argument(study.corpus_setting) for study in studies}
        if key not in self._corpora:
            stop(f"no study is trained on a corpus with the tokens {key}; there are {_listed(self._corpora)}")
        return self._corpora[key]

    def all_cores(self) -> int:
        """Return the number of cores of this call, for rules that take them all."""
        try:
            return int(self.workflow.cores)
        except WorkflowError:
            stop(
                f"config/systems/{self.system_name}.yaml has no key `slurm`, so its cells run on this machine: use "
                f"./run or give --cores; or name a cluster's file with --config system=..."
            )


def _as_argument(setting: str | Mapping[str, str]) -> str:
    return setting if isinstance(setting, str) else json.dumps(setting, sort_keys=True)


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
