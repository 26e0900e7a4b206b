"""What a call says of its studies before anything starts: what they will take, and which cells are to be measured."""

from __future__ import annotations

from snakemake.logging import logger

from launcher.slurm.partitions import limits_lines
from launcher.slurm.trying import refused_lines
from planning.budget import budget
from planning.plan import Study
from planning.plan_lines import missing_lines, plan_lines
from terminal.short_words import counted_words
from terminal.shown_cells import cells_to_show
from terminal.snakemake_words import OURS
from workflow_support.call import RESULTS, Call
from workflow_support.messages import explained


class PlanMessages:
    """The messages of one call about its plan."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def tell_plan(self, study: Study) -> None:
        """Say which planned cells will not be launched and why; in a dry run also what each missing cell is."""
        hardware = self._call.hardware()
        for line in plan_lines(study, hardware):
            logger.warning(line)
        if self._call.workflow.dryrun:
            for line in explained(lambda: list(missing_lines(study, RESULTS, hardware))):
                logger.info(line)
        else:
            cells = cells_to_show(study, RESULTS, self._call.jobs_in_queue)
            logger.info(
                f"{study.name} on {study.system.name}: {counted_words(len(cells), 'cell')} to measure",
                extra={OURS.cells: cells},
            )

    def tell_budget(self, study: Study) -> None:
        """Say what a study's missing cells will take; where no cluster's hours are spent, in a dry run only."""
        call, dryrun = self._call, self._call.workflow.dryrun
        if not study.system.slurm and not dryrun:
            return
        cost = explained(budget, study, RESULTS, call.jobs_in_queue, call.hardware())
        if not cost.cells:
            return
        logger.warning(f"{study.name} on {study.system.name}: {cost.words()}")
        if dryrun:
            for line in cost.lines():
                logger.info(line)
        if study.system.slurm:
            for line in limits_lines(study, RESULTS, call.jobs_in_queue, call.queue_errors):
                logger.warning(f"{study.name}: {line}")
            if dryrun and not call.queue_errors:
                for line in refused_lines(study, RESULTS, call.jobs_in_queue):
                    logger.warning(f"{study.name}: {line}")
