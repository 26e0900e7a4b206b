"""The settings of the executor slurm-cells; what it does is looked at on a real Slurm (tests/slurm)."""

from __future__ import annotations

import pytest
from snakemake_executor_plugin_slurm_cells import Executor, ExecutorSettings
from snakemake_interface_common.exceptions import WorkflowError


def test_array_jobs_are_refused() -> None:
    with pytest.raises(WorkflowError, match="--slurm-cells-array-jobs: cells are jobs of their own"):
        ExecutorSettings(array_jobs="all")


def test_a_command_reaches_sbatch_as_a_script_that_no_shell_reads_before() -> None:
    assert ExecutorSettings().pass_command_as_script


def test_the_methods_that_it_replaces_are_still_those_of_the_plugin() -> None:
    """A newer plugin that calls them otherwise would go its own way without a word."""
    replaced = {name for name in vars(Executor) if not name.startswith("_")}
    (plugin,) = Executor.__bases__
    assert {name for name in replaced if not hasattr(plugin, name)} == set()
