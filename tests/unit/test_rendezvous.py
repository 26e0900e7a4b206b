"""Where ranks meet: at a port that their own rank 0 holds, and with the ranks of their own launch alone."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

import factories
from contracts.adaptor import Job
from frameworks.torch import torch_setup
from launcher.part import LaunchPlan, _commands
from workloads import rendezvous
from workloads.rendezvous import (
    MEETING_FILE,
    Meeting,
    MeetingPlace,
    meeting_of_this_launch,
    meeting_variables,
    open_port,
    place_of,
)

CELL = factories.make_cell("torch_ddp")


@pytest.fixture(autouse=True)
def kept_environment() -> Iterator[None]:
    """Meeting completes the environment; what a test was told must not reach the next one."""
    before = dict(os.environ)
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ |= before


def told(folder: Path, token: str) -> None:
    """What launch.py tells a rank."""
    os.environ |= meeting_variables(folder, "127.0.0.1", token)


def job(rank: int, world_size: int = 2) -> Job:
    return Job(CELL, rank, world_size, rank)


def test_a_port_that_another_launch_holds_does_not_matter(tmp_path: Path) -> None:
    """The other launch answers at the very port that this one was given the old way."""
    with open_port() as other:
        told(tmp_path, "ours")
        os.environ["MASTER_PORT"] = taken = str(other.getsockname()[1])
        runtime = torch_setup.start(job(0, 1))
        try:
            assert runtime.grouped and dist.get_world_size() == 1
            assert os.environ["MASTER_PORT"] != taken
        finally:
            dist.destroy_process_group()


def test_two_launches_at_once_never_meet(tmp_path: Path) -> None:
    """Both have the same address and start at the same moment; each rank finds what its own rank 0 has written."""
    launches = [Meeting(tmp_path / name, "127.0.0.1", name) for name in ("one", "two")]
    listeners = [open_port() for _ in launches]
    places = [place_of(listener, "127.0.0.1") for listener in listeners]
    try:
        assert places[0].port != places[1].port
        with ThreadPoolExecutor() as pool:
            for launch in launches:
                launch.folder.mkdir()
            found = [pool.submit(launch.find, 20) for launch in launches]
            for launch, place in zip(launches, places, strict=True):
                launch.announce(place)
            assert [one.result() for one in found] == places
    finally:
        for listener in listeners:
            listener.close()


def test_ranks_meet_in_one_store(tmp_path: Path) -> None:
    told(tmp_path, "ours")
    first = torch_setup.meet(job(0))
    second = torch_setup.meet(job(1))
    first.set("said", "by rank 0")
    assert second.get("said") == b"by rank 0"
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("127.0.0.1", str(first.port))


def test_a_rank_that_comes_to_another_launch_is_refused_in_words(tmp_path: Path) -> None:
    """Its own rank 0 ended, and the port was given out again to another launch."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir(), ours.mkdir()
    told(theirs, "theirs")
    store = torch_setup.meet(job(0))
    told(ours, "ours")
    meeting_of_this_launch().announce(MeetingPlace("127.0.0.1", store.port))
    with pytest.raises(RuntimeError, match=r"rank 1 met another launch \(its token is theirs, this launch's ours\)"):
        torch_setup.meet(job(1))
    assert store.add(f"{torch_setup.LAUNCH_KEY}/rank/1", 1) == 1, "it was counted among the others"


def test_ranks_wait_for_late_ones_as_long_as_the_launch_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of hundreds of nodes the last may come when a collective would have been given up long ago."""
    monkeypatch.setattr(torch_setup, "COLLECTIVE_TIMEOUT", timedelta(seconds=0.2))
    os.environ |= meeting_variables(tmp_path, "127.0.0.1", "ours", 30.0)

    def come(rank: int) -> dist.TCPStore:
        store = torch_setup.meet(job(rank))
        torch_setup.wait_for_all(store, job(rank))
        return store

    with ThreadPoolExecutor() as pool:
        early = pool.submit(come, 1)
        time.sleep(0.5)
        first = pool.submit(come, 0)
        assert [one.result().get("scaling_eval_launch") for one in (first, early)] == [b"ours", b"ours"]


def test_a_rank_that_never_comes_is_waited_for_no_longer_than_that(tmp_path: Path) -> None:
    os.environ |= meeting_variables(tmp_path, "127.0.0.1", "ours", 0.2)
    store = torch_setup.meet(job(0))
    with pytest.raises(dist.DistStoreError):
        torch_setup.wait_for_all(store, job(0))


def test_the_launch_says_how_long_ranks_may_wait(tmp_path: Path) -> None:
    plan = LaunchPlan(["python"], 1, 1, "127.0.0.1", str(tmp_path), "ours", {}, startup_timeout_s=900.0)
    commands = _commands(plan, plan.parts()[0], "n0", {})
    assert meeting_of_this_launch(commands[0].environment).timeout_s == 900.0


def test_what_another_launch_has_written_is_refused(tmp_path: Path) -> None:
    Meeting(tmp_path, "127.0.0.1", "theirs").announce(MeetingPlace("127.0.0.1", 1))
    with pytest.raises(RuntimeError, match=f"{MEETING_FILE} was written by another launch"):
        Meeting(tmp_path, "127.0.0.1", "ours").find(1)


def test_two_processes_that_are_the_same_rank_are_noticed(tmp_path: Path) -> None:
    told(tmp_path, "ours")
    stores = [torch_setup.meet(job(0)), torch_setup.meet(job(1))]
    with pytest.raises(RuntimeError, match="two processes of this launch came to the others as rank 1"):
        torch_setup.meet(job(1))
    del stores


def test_a_rank_waits_for_the_file_and_not_for_ever(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, "127.0.0.1", "ours")
    with pytest.raises(TimeoutError, match=r"rank 0 did not say within 0\.05 s where the ranks meet"):
        meeting.find(0.05)
    later = threading.Timer(0.1, meeting.announce, [MeetingPlace("node0", 4711)])
    later.start()
    assert meeting.find(20) == MeetingPlace("node0", 4711)
    assert os.environ["MASTER_PORT"] == "4711"
    later.join()
    assert not [path for path in tmp_path.iterdir() if path.name != MEETING_FILE]
    assert json.loads((tmp_path / MEETING_FILE).read_text())["port"] == 4711


def test_an_open_port_is_nobody_elses() -> None:
    with open_port() as listener, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="Address already in use"):
            other.bind(("", listener.getsockname()[1]))
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1]), timeout=5):
            pass  # every interface, IPv4 as well


def test_no_name_server_is_asked_for_the_name_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch looks the name of ::ffff:127.0.0.1 up, which is in nobody's /etc/hosts, and waits 5 s for each answer."""
    with open_port() as listener:
        assert place_of(listener, "10.1.2.3").address == "10.1.2.3"
        for has_loopback, address in ((True, "::1"), (False, "127.0.0.1")):
            monkeypatch.setattr(rendezvous, "_has_ipv6_loopback", lambda has=has_loopback: has)
            expected = address if listener.family == socket.AF_INET6 else "127.0.0.1"
            assert place_of(listener, "127.0.0.1").address == expected


def test_a_host_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def without(family: int = socket.AF_INET, *arguments: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError("Address family not supported by protocol")
        return real(family, *arguments)

    monkeypatch.setattr(rendezvous.socket, "socket", without)
    with open_port() as listener:
        assert listener.family == socket.AF_INET
        assert place_of(listener, "127.0.0.1").address == "127.0.0.1"


def test_a_rank_that_nobody_started_is_told_who_does() -> None:
    words = f"{rendezvous.FOLDER_VARIABLE} is not set: a rank is started by scripts/launch.py"
    with pytest.raises(ValueError, match=words):
        meeting_of_this_launch({"MASTER_ADDR": "127.0.0.1", rendezvous.TOKEN_VARIABLE: "x"})


def test_a_launch_gives_no_port_away() -> None:
    """Nobody but rank 0 can know which one it will get."""
    assert "port" not in " ".join(LaunchPlan.__dataclass_fields__)


def test_no_model_is_the_last_to_hold_a_group(tmp_path: Path) -> None:
    """DistributedDataParallel lets go of its group with Python's lock held, for which the group's threads may wait."""
    told(tmp_path, "ours")
    runtime = torch_setup.start(job(0, 1))
    groups = [dist.group.WORLD, runtime.mesh(data=1, tensor=1).get_group("data")]
    dist.destroy_process_group()
    held = list(map(id, torch_setup._GLOO_GROUPS))
    assert {id(group) for group in groups} <= set(held)
