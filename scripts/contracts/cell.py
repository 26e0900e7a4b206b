"""Cells: what one training job is, and the content address under which its record is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# Keys that a cell's identity leaves out while they hold these values, so that a key added later
# (with the behaviour of before as its default) gives every old cell the same id as ever.
IDENTITY_DEFAULTS: Mapping[str, Any] = {
    "activation_checkpointing": "none",
    "layout.tensor_parallel": 1,
    "layout.pipeline_parallel": 1,
    "model.tie_embeddings": False,
    "model.architecture": "gpt",
    "threads_per_process": None,
}

_ABSENT = object()

OPTIMIZER = {"name": "adamw", "betas": [0.9, 0.95], "weight_decay": 0.0}


@dataclass(frozen=True)
class Model:
    """A model's shape. `seq_length` and `vocab_size` count tokens; the feed-forward is 4 x `hidden_size`."""

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    seq_length: int
    vocab_size: int
    tie_embeddings: bool = False
    architecture: str = "gpt"
    source: str = ""
    shown_as: str = ""  # what tables and figures call it, where that is not its name

    @property
    def num_parameters(self) -> int:
        """The exact count: token and position embeddings, layers with biases, last LayerNorm, head without bias."""
        h = self.hidden_size
        per_layer = 12 * h * h + 13 * h
        head = 0 if self.tie_embeddings else self.vocab_size * h
        return self.vocab_size * h + self.seq_length * h + self.num_layers * per_layer + 2 * h + head

    def shape(self) -> dict[str, Any]:
        """What is measured: everything but its names and where it was taken from."""
        return {
            "architecture": self.architecture,
            "num_layers": self.num_layers,
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
            "seq_length": self.seq_length,
            "vocab_size": self.vocab_size,
            "tie_embeddings": self.tie_embeddings,
        }


@dataclass(frozen=True)
class Layout:
    """How a framework spreads one model over the GPUs; `micro_batch_size` counts sequences per data rank.

    `options` holds what only some frameworks know (a schedule, a ZeRO stage), as their adaptors declare it;
    `default_options` the values that an identity leaves out, so that a new option of an adaptor orphans nothing.
    """

    data_parallel: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    micro_batch_size: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    default_options: Mapping[str, Any] = field(default_factory=dict)

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
        return ", ".join([" x ".join(used), f"micro-batch {self.micro_batch_size}", *options])


def unit_of(device: str) -> str:
    """Return what a cell's `num_gpus` counts on this kind of device, in the singular."""
    return "process" if device == "cpu" else "GPU"


def counted(number: int | str, device: str) -> str:
    """Return `1 process`, `2 processes`, `1 GPU`, `48 GPUs`, `8, 16 GPUs`."""
    unit = unit_of(device)
    return f"{number} {unit}" if str(number) == "1" else f"{number} {'processes' if unit == 'process' else 'GPUs'}"


@dataclass(frozen=True)
class Cell:
    """One training job, fully resolved, without its repeat. `identity()` decides where its record lies."""

    framework: str
    adaptor_version: int
    loop_version: int
    environment: Mapping[str, Any]
    model: Model
    num_gpus: int
    layout: Layout
    global_batch_size: int
    precision: str
    activation_checkpointing: str
    corpus: Mapping[str, Any]
    seed: int
    learning_rate: float
    adam_epsilon: float
    device: str
    gpus_per_node: int
    # On a CPU, where a process stands for a GPU. None: a node's cores are divided among its processes; always so with
    # GPUs, whose speed does not come from these threads.
    threads_per_process: int | None = None

    def label(self) -> str:
        """For people: `torch_tensor, demo-14m, 2 GPUs, batch 8, tensor 2, micro-batch 1`; on a CPU `2 processes`."""
        where = counted(self.num_gpus, self.device)
        return f"{self.framework}, {self.model.name}, {where}, batch {self.global_batch_size}, {self.layout.label()}"

    @property
    def num_micro_batches(self) -> int:
        return self.layout.num_micro_batches(self.global_batch_size)

    @property
    def num_nodes(self) -> int:
        return -(-self.num_gpus // self.gpus_per_node)

    def identity(self) -> dict[str, Any]:
        """Everything that decides what is measured, defaults left out (see IDENTITY_DEFAULTS)."""
        full = {
            "framework": self.framework,
            "adaptor_version": self.adaptor_version,
            "loop_version": self.loop_version,
            "environment": dict(self.environment),
            "model": self.model.shape(),
            "num_gpus": self.num_gpus,
            "layout": self.layout.as_dict(),
            "global_batch_size": self.global_batch_size,
            "precision": self.precision,
            "activation_checkpointing": self.activation_checkpointing,
            "corpus": dict(self.corpus),
            "seed": self.seed,
            "optimizer": {**OPTIMIZER, "eps": self.adam_epsilon, "learning_rate": self.learning_rate},
            "device": self.device,
            "gpus_per_node": self.gpus_per_node,
            "threads_per_process": self.threads_per_process,
        }
        return _without_defaults(full)

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


def cell_from_identity(identity: Mapping[str, Any], model_name: str = "") -> Cell:
    """The inverse of `Cell.identity`, for the job that gets the identity on its command line."""
    model = {"tie_embeddings": False, "architecture": "gpt", **identity["model"]}
    layout = dict(identity["layout"])
    degrees = {
        "data_parallel": layout.pop("data_parallel"),
        "tensor_parallel": layout.pop("tensor_parallel", 1),
        "pipeline_parallel": layout.pop("pipeline_parallel", 1),
        "micro_batch_size": layout.pop("micro_batch_size"),
    }
    return Cell(
        framework=identity["framework"],
        adaptor_version=identity["adaptor_version"],
        loop_version=identity["loop_version"],
        environment=identity["environment"],
        model=Model(name=model_name, **model),
        num_gpus=identity["num_gpus"],
        layout=Layout(**degrees, options=layout),
        global_batch_size=identity["global_batch_size"],
        precision=identity["precision"],
        activation_checkpointing=identity.get("activation_checkpointing", "none"),
        corpus=identity["corpus"],
        seed=identity["seed"],
        learning_rate=identity["optimizer"]["learning_rate"],
        adam_epsilon=identity["optimizer"]["eps"],
        device=identity["device"],
        gpus_per_node=identity["gpus_per_node"],
        threads_per_process=identity.get("threads_per_process"),
    )


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_defaults(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in data.items():
        path = f"{prefix}{key}"
        if path in IDENTITY_DEFAULTS and IDENTITY_DEFAULTS[path] == value:
            continue
        kept[key] = _without_defaults(value, f"{path}.") if isinstance(value, Mapping) else value
    return kept
