"""Snakemake's logger plugin `cells`: a line for every cell in place of a paragraph for every job.

Snakemake finds it by this module's name, where scripts/ is on its path (PYTHONPATH=scripts snakemake --logger cells).
Nobody has to ask for it: workflow/rules/common.smk puts it in the place of Snakemake's own output. A profile that named
it would make every Snakemake refuse to start that does not have it on its path, and a copy installed beside Snakemake
would be left behind by a checkout that is moved or changed.

snakemake-logger-plugin-rich (0.5.1) does not serve: it draws a bar for every rule, knows nothing of cells, what they
measured or why they failed, and calls itself not fully stable.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from logging import WARNING, Logger, LogRecord
from pathlib import Path
from typing import Any

from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter
from snakemake.settings.enums import Quietness
from snakemake.settings.types import OutputSettings
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

if str(Path(__file__).resolve().parents[1]) not in sys.path:  # found by its name before the workflow is read
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from terminal.misspelt import study_hint
from terminal.progress import Progress
from terminal.screen import Screen
from terminal.snakemake_words import OURS, Situation, is_needed, is_shown

NAME = "cells"
# What Snakemake calls its handler for the terminal (snakemake/logging.py, _default_streamhandler).
SNAKEMAKES_OWN = "DefaultStreamHandler"
# How often the status is drawn anew, and after how long without any line a log gets one; twice as long each time.
TICK_S = 1.0
SILENCE_S, MOST_SILENCE_S = 30.0, 600.0


def take_over(logger: Logger, settings: OutputSettings, studies: Sequence[str] = ()) -> bool:
    """Put the plugin in the place of Snakemake's own lines on the terminal, and return whether it tells of cells.

    Where the call has named a plugin that writes there, that one stays. studies: their names, for a hint where a target
    is misspelt.
    """
    for handler in logger.handlers:
        if handler.name == SNAKEMAKES_OWN:
            logger.removeHandler(handler)
            ours = LogHandler(settings, None)
            ours.studies = studies
            logger.addHandler(ours)
            return True
    return NAME in settings.log_handler_settings


class LogHandler(LogHandlerBase):
    """Shows a call on the terminal. With --verbose Snakemake's own messages are there as well."""

    def __post_init__(self) -> None:
        settings = self.common_settings
        stream = sys.stdout if settings.stdout else sys.stderr
        self.screen = Screen(stream)
        self.progress = Progress(time.monotonic, self.screen.width)
        self._is_quiet = bool({Quietness.ALL, Quietness.PROGRESS, Quietness.RULES}.intersection(settings.quiet or ()))
        self._snakemake = ColorizingTextHandler(
            nocolor=settings.nocolor,
            stream=stream,
            formatter=DefaultFormatter(settings.quiet, settings.show_failed_logs),
            filter=DefaultFilter(
                settings.quiet, settings.debug_dag, settings.verbose, settings.dryrun, settings.printshellcmds
            ),
        )
        self.studies: Sequence[str] = ()
        self._stats_shown = 0
        self._last_line_s = time.monotonic()
        self._silence_s = SILENCE_S
        self._stopped = threading.Event()
        self._ticker: threading.Thread | None = None

    def emit(self, record: LogRecord) -> None:
        try:
            if self._is_snakemakes(record):
                self.screen.clear()
                self._snakemake.handle(record)
            self._write(self._lines(record), is_needed=record.levelno >= WARNING)
        except Exception:  # logging's own rule: a message that cannot be shown is reported and must not end the run
            self.handleError(record)

    def close(self) -> None:
        self._stopped.set()
        with self.lock:
            self.screen.clear()
        super().close()

    def _is_snakemakes(self, record: LogRecord) -> bool:
        """Return whether the message is shown in Snakemake's own words."""
        settings = self.common_settings
        if getattr(record, "event", None) is LogEvent.RUN_INFO:
            self._stats_shown += 1
        if settings.verbose:
            return True
        if hasattr(record, OURS.cells) or is_needed(record):
            return False
        if self.progress.has_told(getattr(record, OURS.cell, None), record.getMessage()):
            return False
        situation = Situation(
            dryrun=settings.dryrun,
            printshellcmds=settings.printshellcmds,
            show_failed_logs=settings.show_failed_logs,
            stats_shown=self._stats_shown,
            has_failed=self.progress.has_failed,
        )
        return is_shown(record, situation)

    def _lines(self, record: LogRecord) -> list[str]:
        """Return what a message gives beside, or in place of, Snakemake's own words."""
        event: Any = getattr(record, "event", None)
        values: Any = vars(record)
        progress = self.progress
        if hasattr(record, OURS.cells):
            progress.announce(record.getMessage(), values[OURS.cells])
        elif is_needed(record):
            return [] if self.common_settings.verbose else [record.getMessage()]
        elif event is LogEvent.ERROR:
            hint = study_hint(record.getMessage(), self.studies)
            return [hint] if hint else []
        elif self.common_settings.dryrun:
            pass
        elif event is LogEvent.RUN_INFO:
            self._start_ticker()
            return progress.begin(values["stats"])
        elif event is LogEvent.JOB_INFO:
            log = values["log"][0] if values["log"] else ""
            return progress.start(values["jobid"], values["rule_name"], values["wildcards"], log, values["local"])
        elif event is LogEvent.JOB_FINISHED:
            return progress.finish(values["job_id"])
        elif event is LogEvent.JOB_ERROR:
            return progress.fail(values["jobid"], values["rule_msg"] or "")
        return []

    def _write(self, lines: list[str], is_needed: bool) -> None:
        if lines and (is_needed or not self._is_quiet):
            self.screen.write(lines)
            self._last_line_s = time.monotonic()
            self._silence_s = SILENCE_S

    def _start_ticker(self) -> None:
        if self._is_quiet or self._ticker is not None:
            return
        # A daemon: a run that is ended by an exception must not wait for it.
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()

    def _tick(self) -> None:
        """Say what runs: on a terminal again and again in the same place, in a log after a long silence."""
        while not self._stopped.wait(TICK_S):
            with self.lock:
                if self.screen.is_terminal:
                    self.screen.show_status(self.progress.status())
                elif time.monotonic() - self._last_line_s >= self._silence_s:
                    self._silence_s = min(2 * self._silence_s, MOST_SILENCE_S)
                    self._last_line_s = time.monotonic()
                    status = self.progress.status()
                    self.screen.write([status] if status else [])

    @property
    def writes_to_stream(self) -> bool:
        return True

    @property
    def writes_to_file(self) -> bool:
        return False

    @property
    def has_filter(self) -> bool:
        return True

    @property
    def has_formatter(self) -> bool:
        return True

    @property
    def needs_rulegraph(self) -> bool:
        return False
