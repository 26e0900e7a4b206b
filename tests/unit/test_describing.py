"""Drafts of a system file from Slurm's answers. Those under tests/data/clusters are made up in the form of scontrol(1),
sacctmgr(1) and srun(1), one folder for a kind of site.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts.errors import ConfigError
from describing.answers import Answers, read_answers
from describing.draft import MARK, PLACEHOLDER, draft_of
from describing.site import GPUS, site_of
from describing.slurm_gpus import matching_devices
from planning.budget import budget
from planning.job_resources import cell_resources
from planning.studies import load_hardware, load_study
from studies import ROOT

CLUSTERS = ROOT / "tests" / "data" / "clusters"
KINDS = ("typed_gres", "gpus_per_node", "whole_nodes", "no_accounting")
HARDWARE = load_hardware(ROOT)


def draft(kind: str, partition: str | None = None) -> tuple[dict[str, Any], str, str]:
    """The file's keys, its text, and what is marked in it."""
    found = draft_of(site_of(read_answers(CLUSTERS / kind), partition), HARDWARE)
    return yaml.safe_load(found.text), found.text, "\n".join(found.marked)


def test_typed_gpus_are_asked_for_by_gres() -> None:
    config, text, marked = draft("typed_gres")
    assert {key: config[key] for key in ("device", "devices", "gpus_per_node", "num_nodes")} == {
        "device": "cuda", "devices": ["A100"], "gpus_per_node": 4, "num_nodes": 3,
    }  # fmt: skip
    assert config["slurm"] == {
        "partition": "gpu", "gpu_request": "gres", "gpu_type": "a100", "exclusive": True, "cpus_per_gpu": 16,
        "memory_per_gpu_gib": 125.0, "mpi": "pmi2",
    }  # fmt: skip
    assert "MaxNodes=3 of partition gpu" in text and "MaxTime=2-00:00:00" in text
    assert "of proj1, proj2 (sacctmgr" in marked  # proj3 is for another partition


def test_a_type_with_a_hyphen_is_asked_for_by_gpus_per_node() -> None:
    config, text, marked = draft("gpus_per_node")
    assert (config["devices"], config["gpus_per_node"], config["num_nodes"]) == (["H100-PCIe"], 4, 6)
    site = config["slurm"]
    assert (site["gpu_request"], site["gpu_type"], site["account"]) == ("gpus_per_node", "nvidia-h100-pcie", "m0001")
    assert site["partition"] == "regular" and "other partitions: debug" in text
    assert "account" not in marked
    debug, _, _ = draft("gpus_per_node", "debug")
    assert (debug["num_nodes"], debug["slurm"]["partition"]) == (2, "debug")


def test_nodes_whose_gpus_slurm_does_not_know_are_marked() -> None:
    config, _, marked = draft("whole_nodes")
    assert (config["device"], config["gpus_per_node"]) == ("cpu", 2)
    assert config["slurm"]["gpu_request"] == "none" and config["slurm"]["exclusive"] is True
    assert config["slurm"]["mpi"] == "pmix"
    assert "device: Slurm knows of no GPU on the nodes of batch" in marked


def test_without_accounting_and_types_what_is_not_known_is_marked() -> None:
    config, text, marked = draft("no_accounting")
    assert (config["devices"], config["gpus_per_node"], config["num_nodes"]) == ([PLACEHOLDER], 8, 1)
    assert "devices: which GPU this is: Gres=gpu:8 of node a1 does not tell." in marked
    assert "the partition has 1 x gpu:8, 2 x gpu:2" in marked
    assert not {"account", "gpu_type", "mpi"} & config["slurm"].keys()
    assert config["slurm"]["partition"] == "all"  # old is down
    assert "qos" not in text and "account" not in marked


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_says_where_it_is_from(kind: str) -> None:
    _, text, _ = draft(kind)
    lines = text.splitlines()
    for above, line in itertools.pairwise(lines):
        if not line.lstrip().startswith("#") and line != "slurm:":
            assert above.lstrip().startswith("# "), line
    assert MARK in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_is_planned_with_unchanged(kind: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("scripts", "workflow", "envs", "corpora", "reference"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "config", project / "config", ignore=shutil.ignore_patterns("cluster.yaml"))
    (project / "config/systems/cluster.yaml").write_text(draft(kind)[1])
    study = load_study("demo", "cluster", project)
    assert study.runnable() and study.system.slurm
    for planned in study.runnable():
        assert cell_resources(study.system.slurm, planned.cell, 600)["nodes"] <= study.system.max_gpus
    assert budget(study, tmp_path, [], HARDWARE).cells == len(study.runnable())


def test_nothing_is_drafted_where_slurm_shows_nothing() -> None:
    with pytest.raises(ConfigError, match="Slurm shows no partition here"):
        site_of(Answers())
    with pytest.raises(ConfigError, match=r"--partition: there is no 'gpus' \(did you mean 'gpu'"):
        site_of(read_answers(CLUSTERS / "typed_gres"), "gpus")


@pytest.mark.parametrize(
    ("words", "devices"),
    [
        (["a100"], ["A100"]),
        (["nvidia_h100_pcie"], ["H100-PCIe"]),
        (["h100"], ["H100-SXM", "H100-PCIe", "H100-NVL"]),
        (["tesla_v100"], ["V100", "V100-PCIe"]),
        (["nvidia_a100_80gb_pcie"], ["A100"]),
        (["", "ib", "h200"], ["H200"]),
        (["", "ib"], []),
        (["p100"], []),
    ],
)
def test_the_device_is_known_by_its_words(words: list[str], devices: list[str]) -> None:
    assert matching_devices(words, HARDWARE) == devices


@pytest.mark.parametrize(
    ("gres", "kind", "count"),
    [
        ("gpu:4", None, "4"),
        ("gpu:a100:4(S:0-1)", "a100", "4"),
        ("gpu:tesla:no_consume:2", "tesla", "2"),
        ("nvme:1,gpu:nvidia-h100:8(IDX:0-7)", "nvidia-h100", "8"),
    ],
)
def test_gres_are_read_as_slurm_writes_them(gres: str, kind: str | None, count: str) -> None:
    found = GPUS.search(gres)
    assert found and (found["type"], found["count"]) == (kind, count)


def test_a_file_that_is_there_stays() -> None:
    command = [sys.executable, str(ROOT / "scripts/describe_cluster.py"), "--system", "local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "config/systems/local.yaml is there and stays; give another name with --system\n"
