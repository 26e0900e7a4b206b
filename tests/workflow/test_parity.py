"""The study `parity` on 1 and 2 processes, and a wrong adaptor beside it: equal losses are told from unequal ones.

Of the frameworks with packages of their own, one layout each. The others, four processes and the mixed layouts are
compared in tests/unit, where one start of the processes serves all layouts; `./run parity` runs all of it.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
import yaml

from project import ROOT, Project

pytestmark = pytest.mark.slow

DOUBLE = "torch_ddp_wrong"
MISTAKES = ["forgets", "sums"]
# One of each framework's layouts in the study; all but the last run under the Python of the paper's frameworks.
PACKAGED = {
    "axonn": {"pipeline_parallel": "all", "num_gpus": [2]},
    "megatron_lm": {"tensor_parallel": "all", "num_gpus": [2]},
    "deepspeed": {"zero_stage": 3, "num_gpus": [2]},
    "horovod": {"num_gpus": [2]},
}


@pytest.fixture
def parity_table(fresh_project: Project, axonn_paper_python: str, horovod_python: str) -> list[dict[str, str]]:
    """Rows of the table `parity` of the shipped study without its 4-process cells, plus the test double."""
    pythons = {"axonn_paper": axonn_paper_python, "horovod": horovod_python}
    system = yaml.safe_load((fresh_project.root / "config" / "systems" / "local.yaml").read_text())
    system["environments"] = {name: {"kind": "python", "python": python} for name, python in pythons.items()}
    fresh_project.write_yaml("config/systems/local.yaml", system)
    shutil.copy2(ROOT / "tests" / "data" / f"{DOUBLE}.py", fresh_project.root / "scripts" / "frameworks")
    study = yaml.safe_load((ROOT / "config" / "studies" / "parity.yaml").read_text())
    study["comparisons"]["parity"]["cross"]["num_gpus"] = [1, 2]
    for name, framework in study["frameworks"].items():
        if name in PACKAGED:
            study["frameworks"][name] = {"layouts": [PACKAGED[name]]}
        elif framework:
            framework["layouts"] = [layout for layout in framework["layouts"] if layout.get("num_gpus") != [4]]
    study["frameworks"][DOUBLE] = {"layouts": [{"mistake": mistake, "num_gpus": [2]} for mistake in MISTAKES]}
    fresh_project.write_yaml("config/studies/parity.yaml", study)
    run = fresh_project.snakemake("parity", timeout=1200)
    assert run.returncode == 0, run.output
    path = fresh_project.root / "results" / "local" / "parity" / "tables" / "parity.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["losses"] = losses_of(fresh_project.root, row["cell_id"])
    return rows


def losses_of(root: Path, cell_id: str) -> list[float]:
    """Mean over the ranks that hold a loss, batch by batch, straight from the record."""
    (path,) = root.glob(f"results/local/cells/**/{cell_id}/repeat1/record.json")
    series = [rank["losses"] for rank in json.loads(path.read_text())["ranks"]]
    held = [losses for losses in series if losses[0] is not None]
    return [sum(batch) / len(batch) for batch in zip(*held, strict=True)]


@pytest.mark.timeout(2400)  # environments may have to be installed first
def test_every_layout_prints_the_losses_of_plain_torch(parity_table: list[dict[str, str]]) -> None:
    (reference,) = [row["losses"] for row in parity_table if row["framework"] == "torch_plain"]
    assert len(reference) == 11
    assert reference[0] - reference[-1] > 0.1  # a model that does not learn would prove little
    layouts = set()
    for row in parity_table:
        assert row["status"] == "ok", row
        largest = max(abs(a - b) / abs(b) for a, b in zip(row["losses"], reference, strict=True))
        assert float(row["max_relative_difference"]) == pytest.approx(largest, rel=1e-6, abs=1e-12)
        if row["framework"] == DOUBLE:
            assert largest > 1e-3
            assert row["within_tolerance"] == "FALSE"
        else:
            assert largest <= 1e-4, row
            assert row["within_tolerance"] == "TRUE"
            layouts.add((row["framework"], int(row["num_gpus"]), row["layout"].partition(",")[0]))
    assert sum(row["framework"] == DOUBLE for row in parity_table) == len(MISTAKES)
    pure = {(f, 2, f"{axis} 2") for f, axis in PURE_AXIS.items()}
    single = {(f, 1, "data 1") for f in PURE_AXIS if f not in PACKAGED} | {("torch_plain", 1, "data 1")}
    assert layouts == pure | single


PURE_AXIS = {"torch_ddp": "data", "torch_fsdp": "data", "torch_tensor": "tensor", "torch_pipeline": "pipeline"}
PURE_AXIS |= {"axonn": "pipeline", "megatron_lm": "tensor", "deepspeed": "data", "horovod": "data"}
