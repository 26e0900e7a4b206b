"""Where the ranks of one launch meet: at a port that rank 0 opens and holds, told through the launch's folder.

A port that somebody else chose, and gave up so that rank 0 could bind it, may be taken by then: two launches on one
host would wait for each other's ranks, or meet them. Here the kernel chooses the port of a socket that stays open.
Rank 0 writes address, port and the launch's token into the folder when it answers there; the others wait for that file,
connect, and compare the token that they are told there with their own launch's.

Nothing here needs a framework. Torch's part of it is `frameworks.torch.torch_setup.meet`.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contracts.atomic import write_json

# What launch.py tells every rank beside RANK, WORLD_SIZE and MASTER_ADDR.
FOLDER_VARIABLE = "SCALING_EVAL_MEETING_FOLDER"
TOKEN_VARIABLE = "SCALING_EVAL_LAUNCH_TOKEN"
TIMEOUT_VARIABLE = "SCALING_EVAL_MEETING_TIMEOUT_S"

MEETING_FILE = "meeting.json"
LOOPBACK = "127.0.0.1"
# Connections that may wait to be accepted; the kernel takes less where its own limit is lower.
BACKLOG = 4096
FIRST_POLL_S, LONGEST_POLL_S = 0.02, 1.0
# For ranks whose starter does not say.
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class MeetingPlace:
    """Where rank 0 answers. On one machine the address may be another name of it than MASTER_ADDR."""

    address: str
    port: int


@dataclass(frozen=True)
class Meeting:
    """One launch's meeting. folder: every rank sees it. address: of rank 0's node. token: no other launch has it.
    timeout_s: how long a rank waits for the others.
    """

    folder: Path
    address: str
    token: str
    timeout_s: float = TIMEOUT_S

    def announce(self, place: MeetingPlace) -> None:
        """Tell the other ranks where rank 0 answers."""
        write_json(self.folder / MEETING_FILE, {"address": place.address, "port": place.port, "token": self.token})
        note_port(place.port)

    def find(self, timeout_s: float) -> MeetingPlace:
        """Wait until rank 0 has announced itself, and return where. Raises TimeoutError when it does not."""
        deadline = time.monotonic() + timeout_s
        wait_s = FIRST_POLL_S
        while (said := self._read()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank 0 did not say within {timeout_s:g} s where the ranks meet ({self.folder})")
            time.sleep(wait_s)
            wait_s = min(1.5 * wait_s, LONGEST_POLL_S)
        place = MeetingPlace(said["address"], said["port"])
        self.refuse_another_launch(said["token"], f"{self.folder / MEETING_FILE} was written by")
        note_port(place.port)
        return place

    def refuse_another_launch(self, token: str, where: str) -> None:
        """Raise RuntimeError, which begins with `where`, when `token` is another launch's."""
        if token != self.token:
            raise RuntimeError(
                f"{where} another launch (its token is {token}, this launch's {self.token}): the ranks of two launches "
                f"must not train together, so this one ends; run again"
            )

    def _read(self) -> dict | None:
        look_again(self.folder)
        try:
            return json.loads((self.folder / MEETING_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None


def look_again(folder: Path) -> None:
    """Have an NFS client ask its server whether anything has come into `folder`, as it does when a folder is opened.
    Without that it goes on for up to a minute saying that a file it once looked for is not there.
    """
    os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))


def meeting_of_this_launch(environment: Mapping[str, str] = os.environ) -> Meeting:
    """Return the meeting that this process was told of. Raises ValueError where nobody told it of one."""
    lacking = [name for name in (FOLDER_VARIABLE, TOKEN_VARIABLE, "MASTER_ADDR") if not environment.get(name)]
    if lacking:
        raise ValueError(
            f"{', '.join(lacking)} is not set: a rank is started by scripts/launch.py, which says where the ranks meet"
        )
    return Meeting(
        Path(environment[FOLDER_VARIABLE]),
        environment["MASTER_ADDR"],
        environment[TOKEN_VARIABLE],
        float(environment.get(TIMEOUT_VARIABLE, TIMEOUT_S)),
    )


def meeting_variables(folder: Path, address: str, token: str, timeout_s: float = TIMEOUT_S) -> dict[str, str]:
    """Return what `meeting_of_this_launch` reads. MASTER_PORT is not known yet: the ranks set it when they meet.

    On one machine nobody needs a name server, and one that does not answer holds no rank up for long (`place_of`).
    """
    variables = {"MASTER_ADDR": address, FOLDER_VARIABLE: str(folder), TOKEN_VARIABLE: token}
    variables[TIMEOUT_VARIABLE] = str(timeout_s)
    return variables | ({"RES_OPTIONS": "timeout:1 attempts:1"} if address == LOOPBACK else {})


def open_port() -> socket.socket:
    """Return a socket that listens on every interface, at a port that the kernel chose and nobody else has.

    It is not marked for reuse (SO_REUSEADDR, SO_REUSEPORT), which would let others bind the same port.
    """
    try:
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # IPv4 as well
            listener.bind(("::", 0))
        except OSError:
            listener.close()
            raise
    except OSError:  # a host without IPv6
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("", 0))
    listener.listen(BACKLOG)
    return listener


def place_of(listener: socket.socket, address: str) -> MeetingPlace:
    """Return where `listener` answers, `address` being its node's.

    Torch asks for the name of every address that it connects to. It takes 127.0.0.1 in IPv6's form, which no /etc/hosts
    has, so that a name server is asked, and where none answers each rank waits for ten seconds and more. ::1 is
    in most.
    """
    port = listener.getsockname()[1]
    if address == LOOPBACK and listener.family == socket.AF_INET6 and _has_ipv6_loopback():
        return MeetingPlace("::1", port)
    return MeetingPlace(address, port)


def note_port(port: int) -> None:
    """Complete the environment contract: from here on the port is known."""
    os.environ["MASTER_PORT"] = str(port)


def _has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
