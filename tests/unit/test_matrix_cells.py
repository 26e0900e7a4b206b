"""A cell's identity: stable under what does not matter, different for all that does."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import jsonschema
import pytest

from contracts.cell import Layout, canonical_json, identity_hash
from contracts.devices import Device
from settings.config import load_schema
from studies import ROOT, cpu_system, expand, study_config
from workloads.training.training_cell import TrainingCell, cell_from_identity


@pytest.fixture
def cell() -> TrainingCell:
    return expand(study_config()).planned[1].cell


CHANGES = {
    "framework": "torch_fsdp",
    "adaptor_version": 99,
    "loop_version": 99,
    "environment": {"name": "torch", "requirements": ["torch==9"]},
    "num_gpus": 4,
    "layout": Layout(data_parallel=1, micro_batch_size=4),
    "global_batch_size": 16,
    "precision": "bf16",
    "activation_checkpointing": "full",
    "corpus": {"source": "other", "revision": "1", "tokenizer": "gpt2"},
    "seed": 5,
    "learning_rate": 0.5,
    "adam_epsilon": 0.5,
    "device": "cuda",
    "gpus_per_node": 8,
    "threads_per_process": 2,
}


@pytest.mark.parametrize("field", CHANGES)
def test_whatever_decides_what_is_measured_changes_the_id(cell: TrainingCell, field: str) -> None:
    assert replace(cell, **{field: CHANGES[field]}).cell_id != cell.cell_id


def test_every_field_of_a_cell_is_in_the_id() -> None:
    assert {field.name for field in fields(TrainingCell)} == {*CHANGES, "model"}


@pytest.mark.parametrize(
    "change", [{"num_layers": 5}, {"hidden_size": 64}, {"tie_embeddings": True}, {"seq_length": 9}]
)
def test_a_shape_changes_the_id(cell: TrainingCell, change: dict[str, int]) -> None:
    assert replace(cell, model=replace(cell.model, **change)).cell_id != cell.cell_id


def test_a_label_or_a_source_does_not(cell: TrainingCell) -> None:
    assert replace(cell, model=replace(cell.model, name="other", source="elsewhere")).cell_id == cell.cell_id


def test_a_new_option_with_its_default_orphans_nothing(cell: TrainingCell) -> None:
    layout = replace(cell.layout, options={"new": 1}, default_options={"new": 1})
    assert replace(cell, layout=layout).cell_id == cell.cell_id
    changed = replace(layout, options={"new": 2})
    assert replace(cell, layout=changed).cell_id != cell.cell_id


def test_keys_at_their_default_are_left_out(cell: TrainingCell) -> None:
    identity = cell.identity()
    assert "activation_checkpointing" not in identity
    assert "tensor_parallel" not in identity["layout"]
    assert "tie_embeddings" not in identity["model"]


def test_the_identity_has_a_schema_and_comes_back(cell: TrainingCell) -> None:
    identity = json.loads(canonical_json(cell.identity()))
    document = {"cell_id": cell.cell_id, "model_name": cell.model.name, "identity": identity}
    jsonschema.Draft202012Validator(load_schema("cell", ROOT)).validate(document)
    assert cell_from_identity(identity, cell.model.name).identity() == identity
    assert identity_hash(identity) == cell.cell_id


def test_the_id_does_not_hang_on_the_order_of_keys(cell: TrainingCell) -> None:
    identity = cell.identity()
    assert identity_hash(dict(reversed(identity.items()))) == identity_hash(identity)


def test_a_cell_of_one_node_is_the_same_on_larger_nodes() -> None:
    ids = {expand(study_config(), cpu_system(gpus_per_node=n, max_gpus=n)).planned[1].cell.cell_id for n in (2, 4, 8)}
    assert len(ids) == 1


def test_an_id_is_what_it_was() -> None:
    """A change of the canonical form would orphan every record there is: this id may never change."""
    identity = {"framework": "x", "model": {"num_layers": 2}, "num_gpus": 1, "learning_rate": 1e-4, "text": "ä"}
    assert canonical_json(identity) == (
        '{"framework":"x","learning_rate":0.0001,"model":{"num_layers":2},"num_gpus":1,"text":"\\u00e4"}'
    )
    assert identity_hash(identity) == "b4ab11166d50"


def test_a_cell_counts_processes_on_a_cpu_and_gpus_elsewhere() -> None:
    assert [Device.CPU.counted(n) for n in (1, 2, "8, 16")] == ["1 process", "2 processes", "8, 16 processes"]
    assert [Device.CUDA.counted(n) for n in (1, 2, "8, 16")] == ["1 GPU", "2 GPUs", "8, 16 GPUs"]
