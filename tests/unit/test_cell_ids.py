"""Every cell of the studies that come with the project keeps its id: under it lie its records, which are GPU-hours."""

from __future__ import annotations

import json

import pytest

from factories import ROOT
from planning.studies import load_study

# By "<system> <study>", in the order of the plan, at the commit before the modules moved into rooms.
BEFORE = json.loads((ROOT / "tests" / "data" / "cell_ids_before.json").read_text())


@pytest.mark.parametrize("which", BEFORE)
def test_cells_keep_their_ids(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of two cores without a GPU, whatever this one is: the system `local` asks for both."""
    monkeypatch.setattr("settings.systems.available_cores", lambda: 2)
    monkeypatch.setattr("settings.systems.visible_gpus", tuple)
    system, study = which.split()
    ids = dict.fromkeys(planned.cell.cell_id for planned in load_study(study, system, ROOT).planned)
    assert list(ids) == BEFORE[which]
