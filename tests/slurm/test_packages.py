"""Frameworks with packages of their own over two nodes: AxoNN under MPI, which srun starts, and DeepSpeed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster import make_cluster
from sandbox import Sandbox

# Installing their environment may be part of it.
pytestmark = pytest.mark.timeout(1200)

LAYOUTS = {
    "torch_plain": [{"num_gpus": [1]}],
    "axonn": [{"pipeline_parallel": 2, "num_gpus": [4]}],
    "deepspeed": [{"zero_stage": 2, "num_gpus": [4]}],
}


def test_axonn_under_mpi_and_deepspeed_train_over_two_nodes(
    sandbox: Sandbox, tmp_path: Path, axonn_paper_python: str
) -> None:
    cluster = make_cluster(tmp_path / "project", sandbox)
    cluster.write_system(
        gpus_per_node=2,
        environments={"axonn_paper": {"kind": "python", "python": axonn_paper_python}},
        slurm={"partition": "gpu", "gpu_type": "h100", "memory_per_gpu_gib": 1.6},
    )
    cluster.project.write_study(
        paper="parity",
        tables=["parity"],
        frameworks={name: {"layouts": layouts} for name, layouts in LAYOUTS.items()},
        global_batch_size=4,
        learning_rate=0.01,
        adam_epsilon=0.001,
        comparisons={"main": {"scaling": "none", "cross": {"models": ["tiny"], "num_gpus": [1, 4]}}},
    )
    run = cluster.snakemake("tiny", timeout=600)
    assert run.returncode == 0, run.output
    for framework in ("axonn", "deepspeed"):
        record = json.loads(cluster.project.record(framework, 4, "cluster").read_text())
        first, second = record["launch"]["hosts"]
        assert first != second
        assert [(rank["host"], rank["local_rank"]) for rank in record["ranks"]] == [
            (first, 0), (first, 1), (second, 0), (second, 1)
        ]  # fmt: skip
    (table,) = cluster.project.root.glob("results/cluster/tiny/tables/parity.csv")
    assert table.read_text().count(",TRUE,") == 3, table.read_text()
