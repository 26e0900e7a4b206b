"""The numbers of the paper's full matrix are those of before the modules moved into rooms, column by column."""

from __future__ import annotations

import hashlib
import io
import json

import pandas as pd
import pytest

from factories import ROOT
from full_matrix import NAMES, full_data
from metrics.columns import csv_text

# A digest of each column, in the order of the rows; without those that hold ids, which follow the pins of packages.
BEFORE = json.loads((ROOT / "tests" / "data" / "measurements_before.json").read_text())
WITH_IDS = {"cell_id", "baseline", "record_path"}


def digest(values: list[str]) -> str:
    return hashlib.sha256("\n".join(values).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", NAMES)
def test_every_column_has_the_values_of_before(name: str) -> None:
    """Whoever means to change a number writes the new digest, and says in the commit why it is the right one."""
    text = csv_text(full_data(name).measurements)
    table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    digests = {column: digest(table[column].tolist()) for column in table if column not in WITH_IDS}
    assert {column: digests.get(column) for column in BEFORE[name]} == BEFORE[name]
    # New columns may come; a matrix without numbers would prove nothing.
    assert len(table) > 100 and (table["tokens_per_s"] != "").sum() > 50
