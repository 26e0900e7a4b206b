"""Slurm is asked the same whatever the shell has set."""

from __future__ import annotations

import os
import sys

import pytest

from launcher.slurm.asking import QueueError, ask_slurm, asking_environment, this_user

NARROWING = {
    **{"SQUEUE_PARTITION": "low", "SQUEUE_FORMAT": "%i", "SACCT_FORMAT": "State", "SINFO_SORT": "N"},
    **{"SLURM_TIME_FORMAT": "relative", "SLURM_BITSTR_LEN": "2"},
}
KEPT = {"SLURM_CONF": "/opt/slurm.conf", "SLURM_CLUSTERS": "big", "PATH": "/bin", "LANG": "C"}


def test_variables_that_change_answers_are_left_out_and_no_others() -> None:
    assert asking_environment(NARROWING | KEPT) == KEPT


def test_the_program_that_is_asked_does_not_see_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_PARTITION", "low")
    shown = ask_slurm([sys.executable, "-c", "import os; print(*(n for n in os.environ if n.startswith('SQUEUE')))"])
    assert shown == "\n"


def test_the_user_is_not_taken_from_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "nobody")
    monkeypatch.setenv("USER", "nobody")
    assert this_user() == str(os.getuid())


def test_what_slurm_says_instead_of_an_answer_is_told() -> None:
    with pytest.raises(QueueError, match="says: no such partition"):
        ask_slurm([sys.executable, "-c", "import sys; sys.exit('no such partition')"])
    with pytest.raises(QueueError, match="gave no answer"):
        ask_slurm(["no-such-program-of-slurm"])
