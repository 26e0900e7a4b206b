"""From cells to what Slurm is asked for, and from what Slurm says to a reason; pure parts, without a Slurm."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts.errors import ConfigError
from contracts.placement import ranks_by_node
from factories import make_cell
from launcher.interpreter import interpreter_file, training_command
from launcher.part import missing_gpus
from launcher.slurm.jobs import tokenizing_resources
from launcher.slurm.queue import SlurmJob, job_comment, jobs_of_cells
from planning.job_resources import cell_resources, charged_gpus, gpus_on_node, site_resources
from planning.plan import PlannedCell
from planning.studies import load_system
from settings.config import check_config
from settings.systems import EnvironmentSource, SlurmSite, System, system_from_config

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "config" / "systems").glob("example-*.yaml"))


@pytest.mark.parametrize(
    ("num_ranks", "num_nodes", "expected"),
    [
        (1, 1, [range(0, 1)]),
        (8, 2, [range(0, 4), range(4, 8)]),
        (5, 2, [range(0, 3), range(3, 5)]),
        (7, 3, [range(0, 3), range(3, 5), range(5, 7)]),
    ],
)
def test_ranks_by_node(num_ranks: int, num_nodes: int, expected: list[range]) -> None:
    assert ranks_by_node(num_ranks, num_nodes) == expected


def test_gpus_are_asked_for_per_node() -> None:
    site = SlurmSite(gpu_type="a100", cpus_per_gpu=12, memory_per_gpu_gib=100, job_overhead_minutes=5)
    assert cell_resources(site, make_cell(num_gpus=8, gpus_per_node=4), 1800) == {
        "nodes": 2,
        "tasks": None,
        "gres": "gpu:a100:4",
        "mem": "409600 MB",
        "runtime": 35,
        "slurm_extra": "--ntasks-per-node=1 --exclusive",
        "threads": 48,
    }


def test_gpus_per_node_need_the_number_of_tasks() -> None:
    """The Slurm plugin sees no GPU in such a job, and asks for one task, which Slurm would put on one node."""
    asked = cell_resources(SlurmSite(gpu_request="gpus_per_node"), make_cell(num_gpus=8, gpus_per_node=4), 60)
    assert (asked["gres"], asked["tasks"]) == (None, 2)
    assert asked["slurm_extra"] == "--ntasks-per-node=1 --gpus-per-node=4 --exclusive"


def test_whole_nodes_without_a_request_for_gpus() -> None:
    site = SlurmSite(gpu_request="none", reservation="mine", extra=("--exclude=n7",))
    asked = cell_resources(site, make_cell(num_gpus=2, gpus_per_node=2), 90)
    assert (asked["gres"], asked["tasks"], asked["nodes"], asked["runtime"]) == (None, 1, 1, 7)
    assert asked["slurm_extra"] == "--ntasks-per-node=1 --exclusive --reservation=mine --exclude=n7"


def test_uneven_nodes_ask_for_the_larger_share_on_each() -> None:
    assert cell_resources(SlurmSite(), make_cell(num_gpus=5, gpus_per_node=4), 60)["gres"] == "gpu:3"


def test_whole_nodes_are_charged_whole() -> None:
    cell = make_cell(num_gpus=2, gpus_per_node=2)
    assert charged_gpus(SlurmSite(exclusive=True), cell, 4) == 4
    assert charged_gpus(SlurmSite(exclusive=False), cell, 4) == 2


def test_memory_that_is_not_given_is_not_asked_for() -> None:
    assert cell_resources(SlurmSite(), make_cell(), 60)["mem"] is None


def test_nothing_is_asked_for_that_the_system_file_leaves_out() -> None:
    assert site_resources(SlurmSite()) == {"mpi": ""}
    assert site_resources(SlurmSite(partition="gpu", qos="short"))["qos"] == "short"


def test_tokenizing_on_the_login_node_or_as_a_job() -> None:
    system = System("c", "cpu", (), 4, 12, slurm=SlurmSite(partition="gpu", tokenize="job"))
    assert tokenizing_resources(system)["local"] is False
    assert tokenizing_resources(system)["resources"]["slurm_partition"] == "gpu"
    login = replace(system, slurm=SlurmSite())
    assert tokenizing_resources(login) == {"local": True, "threads": 2, "resources": {}}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid(path: Path) -> None:
    config = check_config(yaml.safe_load(path.read_text()), "system", ROOT, path.name)
    system = system_from_config(path.stem, config)
    assert system.slurm is not None
    assert system.max_gpus > 48


def system_of(**slurm: Any) -> System:
    given = {"device": "cpu", "gpus_per_node": 4, "num_nodes": 2, "slurm": slurm}
    return system_from_config("cluster", check_config(given, "system", ROOT, "cluster.yaml"))


def test_contradictions_in_a_system_file_are_refused() -> None:
    assert system_of().slurm == SlurmSite()
    with pytest.raises(ValueError, match="no GPU is asked for"):
        system_of(gpu_request="none", gpu_type="a100")
    with pytest.raises(ValueError, match="share GPUs unknowingly"):
        system_of(gpu_request="none", exclusive=False)
    with pytest.raises(ConfigError, match=r"slurm: unknown key 'partitoin' \(did you mean 'partition'"):
        system_of(partitoin="gpu")


def test_several_nodes_need_a_scheduler() -> None:
    given = check_config({"device": "cpu", "num_nodes": 2}, "system", ROOT, "mine.yaml")
    with pytest.raises(ValueError, match="without the key `slurm` cells run on this machine alone"):
        system_from_config("mine", given)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("mine", "environments: {pytorch: {kind: venv}}", r"there is no envs/pytorch.txt \(did you mean 'torch'"),
        ("mine", "environment: {A=B: x}", "A=B"),
        ("tokens", "", "results/tokens is kept for something else"),
    ],
)
def test_a_system_file_that_would_be_misread_is_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / "config" / "systems").mkdir(parents=True)
    (tmp_path / "config" / "systems" / f"{name}.yaml").write_text(f"device: cpu\n{content}\n")
    for folder in ("envs", "workflow"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    with pytest.raises(ConfigError, match=message):
        load_system(name, tmp_path)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"kind": "apptainer"}, "`image` goes with kind `apptainer`"),
        ({"kind": "venv", "python": "x"}, "brings its own interpreter"),
    ],
)
def test_contradictions_of_an_environment_are_refused(environment: dict[str, str], message: str) -> None:
    given = {"device": "cpu", "environments": {"torch": environment}}
    with pytest.raises(ValueError, match=message):
        system_from_config("cluster", check_config(given, "system", ROOT, "cluster.yaml"))


def planned(repeat: int = 1) -> PlannedCell:
    return PlannedCell("main", make_cell(num_gpus=2), repeat)


def job(job_id: str, comment: str, state: str = "RUNNING", workdir: str = "/work") -> SlurmJob:
    return SlurmJob(job_id, state, "None", "n1", "2026-11-29T12:00:00", workdir, comment)


def test_the_latest_job_of_a_cell_is_found(tmp_path: Path) -> None:
    cell = planned()
    comment = job_comment("cluster", cell)
    jobs = [
        job("9", comment, "FAILED", str(tmp_path)),
        job("10", comment, "PENDING", str(tmp_path)),
        job("11", comment, "RUNNING", "/another/checkout"),
        job("12", job_comment("cluster", planned(2)), "RUNNING", str(tmp_path)),
    ]
    assert jobs_of_cells("cluster", [cell], jobs, tmp_path) == {cell.key: jobs[1]}


def test_slurms_words_name_the_job_its_state_and_the_nodes() -> None:
    ended = SlurmJob("42", "NODE_FAIL", "None", "n[1-2]", "", "", "")
    assert ended.words() == "Slurm job 42: NODE_FAIL (nodes n[1-2])"
    assert (ended.kind, ended.is_in_queue) == ("node_failure", False)
    assert SlurmJob("7", "PENDING", "Resources", "", "", "", "").words() == "Slurm job 7: PENDING (Resources)"


@pytest.mark.parametrize(
    ("states", "in_queue", "kinds"),
    [
        # The JOB STATE CODES of squeue(1), Slurm 25.05. REVOKED is left out: only a federation has it.
        ("PENDING CONFIGURING RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING", True, {None}),
        ("REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD", True, {None}),
        ("COMPLETED", False, {None}),
        ("BOOT_FAIL NODE_FAIL LAUNCH_FAILED RECONFIG_FAIL", False, {"node_failure"}),
        ("TIMEOUT DEADLINE", False, {"time_limit"}),
        ("CANCELLED PREEMPTED OUT_OF_MEMORY FAILED", False, {"cancelled", "preempted", "out_of_memory", "crash"}),
    ],
)
def test_every_state_is_one_of_the_queue_or_an_end_with_a_kind(
    states: str, in_queue: bool, kinds: set[str | None]
) -> None:
    jobs = [SlurmJob("42", state, "None", "n1", "", "", "") for state in states.split()]
    assert {job.is_in_queue for job in jobs} == {in_queue}
    assert {job.kind for job in jobs} == kinds


def test_a_job_without_a_node_was_refused_and_time_tells_accounts_apart() -> None:
    refused = SlurmJob("12", "FAILED", "BadConstraints", "", "2026-11-29T12:00:00", "", "")
    assert refused.kind == "refused"
    assert refused.is_older_than("2026-12-01T00:00:00+00:00")
    assert not refused.is_older_than("2026-11-27T00:00:00+00:00")
    assert not replace(refused, submitted="N/A").is_older_than("2026-12-01T00:00:00+00:00")


@pytest.mark.parametrize(
    "option", ["--mail-user=a b", "--nodes=2", "-N2", "--comment=mine", "--array=1-3", "x", "--a=';'"]
)
def test_extra_options_that_would_be_misread_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match=r"slurm\.extra"):
        system_of(extra=[option])
    assert system_of(extra=["--exclude=n[1-3]", "--mail-user=me@site.org", "--hint=nomultithread"]).slurm


def test_a_node_that_lacks_a_gpu_is_noticed() -> None:
    assert missing_gpus(2, {"SLURM_GPUS_ON_NODE": "2"}) == ""
    assert missing_gpus(2, {"SLURM_GPUS_ON_NODE": "1"}) == "shows 1 of the 2 GPUs that the cell needs there"
    assert "no GPU" in missing_gpus(2, {})


def test_training_runs_in_its_environment(tmp_path: Path) -> None:
    script = ["train.py", "--exchange", "x"]
    plain = System("s", "cpu", (), 1, 1)
    assert training_command(plain, "torch", script, tmp_path) == [sys.executable, *script]

    venv = plain.environment_source("deepspeed")
    assert interpreter_file("deepspeed", venv) == "environments/venv-deepspeed.txt"
    with pytest.raises(ConfigError, match="not made yet"):
        training_command(plain, "deepspeed", script, tmp_path)
    (tmp_path / "environments").mkdir()
    note = tmp_path / "environments/venv-deepspeed.txt"
    note.write_text(f"{sys.executable}\n")
    assert training_command(plain, "deepspeed", script, tmp_path) == [sys.executable, *script]
    # Relative to the project: it may be moved.
    (tmp_path / "environments/python").symlink_to(sys.executable)
    note.write_text("environments/python\n")
    assert training_command(plain, "deepspeed", script, tmp_path) == [str(tmp_path / "environments/python"), *script]
    note.write_text(str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match="is gone; delete this file"):
        training_command(plain, "deepspeed", script, tmp_path)


def test_setup_comes_before_the_interpreter_and_its_failure_ends_the_process(tmp_path: Path) -> None:
    import subprocess

    source = EnvironmentSource("python", python="python3", setup=("export SECOND=2",))
    system = System("s", "cpu", (), 1, 1, setup=("export FIRST=1",), environments={"torch": source})
    script = ["-c", "import os, json; print(json.dumps([os.environ['FIRST'], os.environ['SECOND']]))"]
    done = subprocess.run(training_command(system, "torch", script, tmp_path), capture_output=True, text=True)
    assert json.loads(done.stdout) == ["1", "2"]
    broken = replace(system, setup=("module load nowhere",))
    done = subprocess.run(training_command(broken, "torch", script, tmp_path), capture_output=True, text=True)
    assert done.returncode != 0
    assert not done.stdout
    assert "setup of the system file failed: module load nowhere" in done.stderr


def test_a_container_stands_between_the_process_and_its_launcher(tmp_path: Path) -> None:
    source = EnvironmentSource("apptainer", image="torch.sif", arguments=("--nv",))
    system = System("s", "cuda", ("A100",), 4, 4, environments={"torch": source})
    assert training_command(system, "torch", ["train.py"], tmp_path) == [
        "apptainer", "exec", "--nv", "torch.sif", "python3", "train.py", "--wrapped",
    ]  # fmt: skip


@pytest.mark.parametrize(("num_gpus", "per_node", "most"), [(5, 4, 3), (8, 4, 4), (1, 4, 1), (10**9, 1, 1)])
def test_the_fullest_node_is_known_without_listing_all(num_gpus: int, per_node: int, most: int) -> None:
    cell = make_cell(num_gpus=num_gpus, gpus_per_node=per_node)
    assert gpus_on_node(cell) == most
    if num_gpus < 100:
        assert gpus_on_node(cell) == max(map(len, ranks_by_node(num_gpus, cell.num_nodes)))
