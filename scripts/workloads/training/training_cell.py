"""What a cell of the training workload is: a model, spread over the GPUs, trained for eleven batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from contracts.cell import Cell, Layout, common_fields
from contracts.model import Model
from models.architectures import DEFAULT as DEFAULT_ARCHITECTURE
from models.architectures import model_of

OPTIMIZER = {"name": "adamw", "betas": [0.9, 0.95], "weight_decay": 0.0}


@dataclass(frozen=True, kw_only=True)
class TrainingCell(Cell):
    """One training job. `global_batch_size` counts samples (sequences) of one optimizer step over all GPUs."""

    workload: ClassVar[str] = "training"
    own_defaults: ClassVar[Mapping[str, Any]] = {
        "activation_checkpointing": "none",
        "layout.tensor_parallel": 1,
        "layout.pipeline_parallel": 1,
        "model.tie_embeddings": False,
        "model.architecture": DEFAULT_ARCHITECTURE,
    }

    loop_version: int
    model: Model
    layout: Layout
    global_batch_size: int
    precision: str
    activation_checkpointing: str
    corpus: Mapping[str, Any]
    seed: int
    learning_rate: float
    adam_epsilon: float

    @property
    def subject(self) -> str:
        return self.model.name

    @property
    def settings_label(self) -> str:
        return f"batch {self.global_batch_size}, {self.layout.label()}"

    @property
    def num_micro_batches(self) -> int:
        return self.layout.num_micro_batches(self.global_batch_size)

    def own_identity(self) -> dict[str, Any]:
        return {
            "loop_version": self.loop_version,
            "model": self.model.shape(),
            "layout": self.layout.as_dict(),
            "global_batch_size": self.global_batch_size,
            "precision": self.precision,
            "activation_checkpointing": self.activation_checkpointing,
            "corpus": dict(self.corpus),
            "seed": self.seed,
            "optimizer": {**OPTIMIZER, "eps": self.adam_epsilon, "learning_rate": self.learning_rate},
        }


def cell_from_identity(identity: Mapping[str, Any], subject: str = "") -> TrainingCell:
    """Return the cell of an identity, for the job that gets it on its command line; `subject` names the model."""
    layout = dict(identity["layout"])
    degrees = {
        "data_parallel": layout.pop("data_parallel"),
        "tensor_parallel": layout.pop("tensor_parallel", 1),
        "pipeline_parallel": layout.pop("pipeline_parallel", 1),
        "micro_batch_size": layout.pop("micro_batch_size"),
        "stage_layers": tuple(layout.pop("stage_layers", ())),
    }
    return TrainingCell(
        **common_fields(identity),
        loop_version=identity["loop_version"],
        model=model_of(subject, identity["model"]),
        layout=Layout(**degrees, options=layout),
        global_batch_size=identity["global_batch_size"],
        precision=identity["precision"],
        activation_checkpointing=identity.get("activation_checkpointing", "none"),
        corpus=identity["corpus"],
        seed=identity["seed"],
        learning_rate=identity["optimizer"]["learning_rate"],
        adam_epsilon=identity["optimizer"]["eps"],
    )
