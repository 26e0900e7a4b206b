"""What Slurm's partitions allow, and which jobs could never start in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.slurm import partitions, trying
from launcher.slurm.asking import QueueError
from launcher.slurm.partitions import fields_of, limits_lines, minutes_of, read_partitions
from settings.systems import SlurmSite
from studies import comparison, cpu_system, expand, study_config

# In the form of scontrol(1), with the fields that are read and some that are not.
SHOWN = (
    "PartitionName=debug AllowGroups=ALL Default=YES MaxNodes=2 MaxTime=01:00:00 State=UP TotalNodes=4 Nodes=n[1-4]\n"
    "PartitionName=long AllowGroups=ALL Default=NO MaxNodes=UNLIMITED MaxTime=2-00:00:00 State=UP TotalNodes=64 "
    "Nodes=n[1-64] DefMemPerCPU=100\n"
)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("UNLIMITED", None),
        ("30", 30),
        ("90:30", 90.5),
        ("01:00:00", 60),
        ("2-12", 3600),
        ("1-00:30:00", 1470),
        ("", None),
    ],
)
def test_limits_are_read_as_slurm_writes_them(text: str, minutes: float | None) -> None:
    assert minutes_of(text) == minutes


def test_values_with_spaces_are_whole() -> None:
    assert fields_of("NodeName=n1 OS=Linux 6.1 #1 SMP Gres=gpu:a100:4(S:0-1) CfgTRES=cpu=8,mem=7G") == {
        "NodeName": "n1",
        "OS": "Linux 6.1 #1 SMP",
        "Gres": "gpu:a100:4(S:0-1)",
        "CfgTRES": "cpu=8,mem=7G",
    }


def test_partitions_are_read() -> None:
    debug, long = read_partitions(SHOWN)
    assert (debug.name, debug.is_default, debug.most_minutes, debug.most_nodes, debug.num_nodes) == (
        "debug", True, 60, 2, 4,
    )  # fmt: skip
    assert (long.is_default, long.most_minutes, long.most_nodes) == (False, 2880, None)


def lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, site: SlurmSite, minutes: float = 30) -> list[str]:
    points = comparison("strong", [("small", 4), ("small", 12)])
    system = cpu_system(gpus_per_node=4, max_gpus=16, slurm=site)
    config = study_config(
        frameworks={"torch_ddp": None}, comparisons=points, time_limit_minutes=minutes, global_batch_size=12
    )
    monkeypatch.setattr(partitions, "ask_slurm", lambda command: SHOWN)
    return limits_lines(expand(config, system), tmp_path, [], [])


def test_jobs_that_a_partition_never_starts_are_told_with_what_to_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (told,) = lines(monkeypatch, tmp_path, SlurmSite())  # the default partition
    assert told.startswith(
        "1 job of 3 nodes and 35 minutes can never start: partition debug gives a job at most 2 nodes"
    )
    one, three = lines(monkeypatch, tmp_path, SlurmSite(partition="debug"), minutes=60)
    assert one.startswith("1 job of 1 node and 65 minutes can never start: partition debug allows 60 minutes; lower ")
    assert three.startswith("1 job of 3 nodes and 65 minutes can never start: partition debug allows 60 minutes; ")
    assert lines(monkeypatch, tmp_path, SlurmSite(partition="long"), minutes=60) == []
    assert lines(monkeypatch, tmp_path, SlurmSite(partition="debug,long"), minutes=60) == []
    (unknown,) = lines(monkeypatch, tmp_path, SlurmSite(partition="nowhere"))
    assert unknown == "no job can start: there is no partition nowhere; `slurm.partition` may be debug, long"


def test_where_slurm_gives_no_answer_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study = expand(study_config(frameworks={"torch_ddp": None}), cpu_system(slurm=SlurmSite()))
    (told,) = limits_lines(study, tmp_path, [], ["it is away"])
    assert told == "whether Slurm's limits allow these jobs is not known: it is away"

    def away(command: list[str]) -> str:
        raise QueueError("scontrol says: no")

    monkeypatch.setattr(partitions, "ask_slurm", away)
    (told,) = limits_lines(study, tmp_path, [], [])
    assert told.endswith("is not known: scontrol says: no")


def test_slurm_is_asked_about_each_kind_of_job_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def refuse(command: list[str]) -> str:
        asked.append(command)
        raise QueueError("sbatch says: allocation failure: Invalid\nfeature specification")

    site = SlurmSite(constraint="a100&ib", memory_per_gpu_gib=2)
    points = comparison("strong", [("small", 4), ("small", 8)])
    study = expand(
        study_config(frameworks={"torch_ddp": None, "torch_fsdp": None}, comparisons=points),
        cpu_system(gpus_per_node=4, max_gpus=8, slurm=site),
    )
    monkeypatch.setattr(trying, "ask_slurm", refuse)
    two, one = trying.refused_lines(study, tmp_path, [])
    assert two.startswith(
        "2 jobs of 2 nodes would be refused as things stand: sbatch says: allocation failure: Invalid f"
    )
    assert one.startswith("2 jobs of 1 node would be refused as things stand: ")
    assert asked[1] == [
        *("sbatch", "--test-only", "--constraint=a100&ib", "--nodes=1", "--gres=gpu:4", "--cpus-per-task=4"),
        *("--mem=8192", "--time=35", "--ntasks-per-node=1", "--exclusive", "--wrap=true"),
    ]


def test_a_controller_that_is_away_refuses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def away(command: list[str]) -> str:
        raise QueueError("sbatch says: error: Unable to contact slurm controller (connect failure)")

    study = expand(study_config(frameworks={"torch_ddp": None}), cpu_system(slurm=SlurmSite()))
    monkeypatch.setattr(trying, "ask_slurm", away)
    (told,) = trying.refused_lines(study, tmp_path, [])
    assert told.startswith("whether Slurm would take these jobs is not known: sbatch says: error: Unable to contact")
