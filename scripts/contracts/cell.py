"""Cells: what one job measures, and the content address under which its record is kept."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from contracts.devices import Device

# Keys that every cell's identity leaves out while they hold these values, so that a key added later (with the behaviour
# of before as its default) gives every old cell the same id as ever.
COMMON_DEFAULTS: Mapping[str, Any] = {"workload": "training", "threads_per_process": None}

_ABSENT = object()


@dataclass(frozen=True)
class Layout:
    """How a framework spreads one model over the GPUs; `micro_batch_size` counts sequences per data rank.

    `stage_layers` are the layers of each pipeline stage where they are not the same number in all. `options` holds what
    only some frameworks know (a schedule, a ZeRO stage), as their adaptors declare it; `default_options` the values
    that an identity leaves out, so that the cells of before keep their ids when an adaptor gets a new option.
    """

    data_parallel: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    micro_batch_size: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    default_options: Mapping[str, Any] = field(default_factory=dict)
    stage_layers: tuple[int, ...] = ()

    @property
    def num_gpus(self) -> int:
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel

    def num_micro_batches(self, global_batch_size: int) -> int:
        """Micro-batches each data rank works through in one optimizer step (gradient accumulation)."""
        return global_batch_size // (self.data_parallel * self.micro_batch_size)

    def as_dict(self) -> dict[str, Any]:
        return {
            "data_parallel": self.data_parallel,
            "tensor_parallel": self.tensor_parallel,
            "pipeline_parallel": self.pipeline_parallel,
            "micro_batch_size": self.micro_batch_size,
            **({"stage_layers": list(self.stage_layers)} if self.stage_layers else {}),
            **{
                name: value
                for name, value in sorted(self.options.items())
                if self.default_options.get(name, _ABSENT) != value
            },
        }

    def label(self) -> str:
        """For tables and plots: `data 2 x tensor 2, micro-batch 1, schedule 1f1b`."""
        degrees = {
            "data": self.data_parallel,
            "tensor": self.tensor_parallel,
            "pipeline": self.pipeline_parallel,
        }
        used = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1] or ["data 1"]
        options = [f"{name} {value}" for name, value in sorted(self.options.items())]
        stages = [f"layers {'-'.join(map(str, self.stage_layers))}"] if self.stage_layers else []
        return ", ".join([" x ".join(used), f"micro-batch {self.micro_batch_size}", *stages, *options])


@dataclass(frozen=True, kw_only=True)
class Cell(ABC):
    """One job, fully resolved, without its repeat. `identity()` decides where its record lies.

    Here is what every workload's cells have; what else one has is in its own class (workloads/<name>/). `num_gpus`
    counts processes on a CPU, each of which stands for a GPU.
    """

    # The folder in workloads/ that the class belongs to.
    workload: ClassVar[str]
    # Keys of its own part of the identity that are left out while they hold these values.
    own_defaults: ClassVar[Mapping[str, Any]] = {}

    framework: str
    adaptor_version: int
    environment: Mapping[str, Any]
    num_gpus: int
    device: Device
    gpus_per_node: int
    # On a CPU, where a process stands for a GPU. None: a node's cores are divided among its processes; always so with
    # GPUs, whose speed does not come from these threads.
    threads_per_process: int | None = None

    def __post_init__(self) -> None:
        # Identities hold its text.
        object.__setattr__(self, "device", Device(self.device))

    @property
    @abstractmethod
    def subject(self) -> str:
        """What stands in its path between framework and number of GPUs: the model's name, or the workload's label."""

    @property
    @abstractmethod
    def settings_label(self) -> str:
        """Return, for people, what it is besides framework, subject and GPUs: `batch 8, tensor 2, micro-batch 1`."""

    @abstractmethod
    def own_identity(self) -> dict[str, Any]:
        """Return what decides what is measured, besides what all cells have."""

    def label(self) -> str:
        """For people: `torch_tensor, demo-14m, 2 GPUs, batch 8, tensor 2, micro-batch 1`; on a CPU `2 processes`."""
        where = self.device.counted(self.num_gpus)
        return ", ".join(filter(None, (self.framework, self.subject, where, self.settings_label)))

    @property
    def num_nodes(self) -> int:
        return -(-self.num_gpus // self.gpus_per_node)

    def identity(self) -> dict[str, Any]:
        """Everything that decides what is measured, defaults left out (see COMMON_DEFAULTS)."""
        full = {
            "workload": self.workload,
            "framework": self.framework,
            "adaptor_version": self.adaptor_version,
            "environment": dict(self.environment),
            "num_gpus": self.num_gpus,
            "device": self.device,
            "gpus_per_node": self.gpus_per_node,
            "threads_per_process": self.threads_per_process,
            **self.own_identity(),
        }
        return _without_defaults(full, {**COMMON_DEFAULTS, **self.own_defaults})

    @cached_property
    def identity_json(self) -> str:
        """Kept: the rules ask for it several times a cell, and a plan may have 10,000."""
        return canonical_json(self.identity())

    @cached_property
    def cell_id(self) -> str:
        return _short_hash(self.identity_json)


def canonical_json(data: Mapping[str, Any]) -> str:
    """One text for equal data: sorted keys, no spaces, ASCII."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def identity_hash(identity: Mapping[str, Any]) -> str:
    """The cell id: 12 hex digits; 10,000 cells collide with a probability below 2e-7."""
    return _short_hash(canonical_json(identity))


def common_fields(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return, from an identity, the fields that every workload's cells have."""
    names = ("framework", "adaptor_version", "environment", "num_gpus", "device", "gpus_per_node")
    return {name: identity[name] for name in names} | {"threads_per_process": identity.get("threads_per_process")}


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_defaults(data: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in data.items():
        path = f"{prefix}{key}"
        if path in defaults and defaults[path] == value:
            continue
        kept[key] = _without_defaults(value, defaults, f"{path}.") if isinstance(value, Mapping) else value
    return kept
