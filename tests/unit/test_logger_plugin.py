"""The logger plugin among Snakemake's own handlers, with the events that Snakemake sends."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import snakemake_interface_logger_plugins.tests as interface
from snakemake.logging import LoggerManager
from snakemake.settings.enums import Quietness
from snakemake.settings.types import OutputSettings
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

import snakemake_logger_plugin_cells as plugin
from terminal.snakemake_words import OURS


class TestInterface(interface.TestLogHandlerBase):
    """What Snakemake's interface asks of every plugin."""

    __test__ = True

    def get_log_handler_cls(self) -> type[plugin.LogHandler]:
        return plugin.LogHandler

    def get_log_handler_settings(self) -> Any:
        return None


def test_snakemake_takes_it_for_a_plugin() -> None:
    registry = LoggerPluginRegistry()
    registry.validate_plugin(plugin.__name__, plugin)
    assert plugin.__name__ == registry.module_prefix + plugin.NAME


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.fixture
def logger(request: pytest.FixtureRequest, stderr: io.StringIO) -> Iterator[logging.Logger]:
    """A logger as Snakemake sets up its own, with these settings, and the plugin in the place of its lines."""
    settings = OutputSettings(**getattr(request, "param", {}))
    logger = logging.Logger("snakemake of a test")
    manager = LoggerManager(logger, settings)
    assert plugin.take_over(logger, settings)
    yield logger
    manager.stop()


def run(logger: logging.Logger, folder: Path) -> None:
    """A cell that fails and a table, as Snakemake tells of them."""
    logger.info("Building DAG of jobs...")
    logger.info("the Snakefile tells something", extra={OURS.needed: True})
    logger.info(
        "Job stats: ...", extra={"event": LogEvent.RUN_INFO, "stats": {"train_cell": 1, "make_table": 1, "total": 2}}
    )
    wildcards = {"cell_id": "0" * 12, "repeat": "1", "framework": "torch_ddp", "model": "tiny", "num_gpus": "2"}
    job = {
        "event": LogEvent.JOB_INFO, "rule_msg": None, "local": True, "is_checkpoint": False, "input": [], "output": [],
        "benchmark": None, "reason": "Missing output files", "priority": 0, "threads": 2, "resources": {},
    }  # fmt: skip
    cell = {**job, "jobid": 1, "rule_name": "train_cell", "wildcards": wildcards, "log": [str(folder / "log.txt")]}
    logger.info("Rule: train_cell", extra=cell)
    error = {**cell, "event": LogEvent.JOB_ERROR, "conda_env": None, "shellcmd": "false", "aux": {}}
    logger.error("Error in rule train_cell", extra=error)
    table = {**job, "jobid": 2, "rule_name": "make_table", "wildcards": {"table": "a", "study": "b"}, "log": []}
    logger.info("Rule: make_table", extra=table)
    logger.info("Finished", extra={"event": LogEvent.JOB_FINISHED, "job_id": 2})
    logger.warning("a warning of Snakemake")


@pytest.mark.parametrize("logger", [{}], indirect=True)
def test_a_run_in_lines(logger: logging.Logger, stderr: io.StringIO, tmp_path: Path) -> None:
    run(logger, tmp_path)
    told = stderr.getvalue().splitlines()
    assert told[0] == "the Snakefile tells something"
    assert told[1].split()[:2] == ["cell", "framework"]
    assert told[2].split()[:4] == ["1/1", "torch_ddp", "tiny", "2"] and "no result" in told[2]
    assert told[-2:] == ["made 1 table, 0 s", "a warning of Snakemake"]
    assert not any(words in stderr.getvalue() for words in ("reason", "Building DAG", "Job stats", "\r", "\x1b"))


@pytest.mark.parametrize("logger", [{"verbose": True}], indirect=True)
def test_verbose_adds_all_that_snakemake_says(logger: logging.Logger, stderr: io.StringIO, tmp_path: Path) -> None:
    run(logger, tmp_path)
    told = stderr.getvalue()
    for words in ("Building DAG", "Job stats", "reason: Missing output files", "1/1  torch_ddp", "made 1 table"):
        assert told.count(words) >= 1, words
    assert told.count("the Snakefile tells something") == 1


@pytest.mark.parametrize("logger", [{"quiet": {Quietness.PROGRESS, Quietness.RULES}}], indirect=True)
def test_quiet_leaves_the_failures(logger: logging.Logger, stderr: io.StringIO, tmp_path: Path) -> None:
    run(logger, tmp_path)
    told = stderr.getvalue()
    assert "no result" in told and "a warning of Snakemake" in told
    assert "made 1 table" not in told and "cell  framework" not in told


def test_a_plugin_that_the_call_has_named_stays(stderr: io.StringIO) -> None:
    logger = logging.Logger("snakemake of a test")
    logger.addHandler(logging.StreamHandler(stderr))
    assert not plugin.take_over(logger, OutputSettings())
    assert plugin.take_over(logger, OutputSettings(log_handler_settings={plugin.NAME: None}))
    assert len(logger.handlers) == 1
