"""The settings of the executor slurm-cells; what it does is looked at on a real Slurm (tests/slurm)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from snakemake_executor_plugin_slurm_cells import Executor, ExecutorSettings
from snakemake_interface_common.exceptions import WorkflowError

from launcher.slurm import watching


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


class Words:
    """The double of an executor as far as `_may_succeed_later` looks at it."""

    def __init__(self, has_jobs: bool, seconds: float) -> None:
        self._watching, self._has_jobs_in_queue, self._seconds = watching, has_jobs, seconds
        self.workflow = SimpleNamespace(executor_settings=SimpleNamespace(patience_s=600))
        self.told: list[str] = []

    def _tell_once(self, text: str) -> None:
        self.told.append(text)

    def _seconds_since(self, what: str, whom: object) -> float:
        return self._seconds


@pytest.mark.parametrize(
    ("words", "has_jobs", "seconds", "expected"),
    [
        # While jobs of this call are in the queue, room will come, however long they take.
        ("QOSMaxSubmitJobPerUserLimit", True, 86_400, True),
        ("QOSMaxSubmitJobPerUserLimit", False, 60, True),
        ("QOSMaxSubmitJobPerUserLimit", False, 601, False),
        ("Required partition not available (inactive or drain)", True, 601, False),
        ("invalid partition specified: nowhere", True, 1, False),
        ("Unable to contact slurm controller", False, 86_400, True),
    ],
)
def test_which_refusals_are_asked_again(words: str, has_jobs: bool, seconds: float, expected: bool) -> None:
    executor = Words(has_jobs, seconds)
    message = (
        f"SLURM sbatch failed. The error message was 'sbatch: error: {words}'.\n    sbatch call:\n        sbatch x"
    )
    assert Executor._may_succeed_later(executor, None, message) == expected  # type: ignore[arg-type]
    assert bool(executor.told) == expected
