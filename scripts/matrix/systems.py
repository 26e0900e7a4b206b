"""The machine that is measured, as its file in config/systems/ describes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class System:
    """A system file with every `auto` resolved. Memory in GiB, times in seconds."""

    name: str
    device: str  # "cuda" or "cpu"
    devices: tuple[str, ...]  # names in config/hardware.yaml; empty on a CPU, where the peak is measured
    gpus_per_node: int
    max_gpus: int
    memory_limit_gib: float | None = None
    startup_timeout_s: float = 300.0
    environment: Mapping[str, str] = field(default_factory=dict)


def system_from_config(name: str, config: Mapping[str, Any], found: tuple[str, ...] | None = None) -> System:
    """Resolve a validated system file; ValueError where it cannot be.

    `found` are the GPU names of this machine, asked of the driver by default.
    """
    device = config["device"]
    ask = device == "auto" or (device == "cuda" and config["gpus_per_node"] == "auto")
    gpus = (visible_gpus() if found is None else found) if ask else ()
    if device == "auto":
        device = "cuda" if gpus else "cpu"
    if device == "cuda" and ask and not gpus:
        raise ValueError("gpus_per_node is `auto`, but the driver shows no GPU on this machine; give their number")
    if device == "cpu":
        per_node = config["cpu_processes"] if config["gpus_per_node"] == "auto" else config["gpus_per_node"]
        devices: tuple[str, ...] = ()
    else:
        per_node = len(gpus) if config["gpus_per_node"] == "auto" else config["gpus_per_node"]
        devices = tuple(config["devices"]) or tuple(dict.fromkeys(gpus))
    return System(
        name=name,
        device=device,
        devices=devices,
        gpus_per_node=per_node,
        max_gpus=per_node * config["num_nodes"],
        memory_limit_gib=config["memory_limit_gib"],
        startup_timeout_s=config["startup_timeout_s"],
        environment=dict(config["environment"]),
    )


def visible_gpus() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs this process may use, as the driver gives them; empty where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        names = [
            pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())
        ]
    finally:
        pynvml.nvmlShutdown()
    # What CUDA_VISIBLE_DEVICES hides is not ours to plan with; entries may be indices, UUIDs or MIG names.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(names)
    chosen = [entry.strip() for entry in visible.split(",") if entry.strip() not in ("", "-1", "NoDevFiles")]
    return tuple(names[int(e)] if e.isdecimal() and int(e) < len(names) else names[0] for e in chosen if names)
