"""PyTorch tensor parallelism (DTensor), with data parallelism over the rest of the devices.

Attention is split by heads, the feed-forward by its inner width, embedding, head and loss by the vocabulary. Ranks of
one tensor group are neighbours, so that they share a node.

`data_sharding`: over the data ranks, "none" replicates the tensor shards and all-reduces their gradients; "full" shards
them further with FSDP2.
`accumulate`: how gradients of several micro-batches are added up: "whole", reduced over the data ranks once a step, or,
with sharding, as "shards", reduced with every micro-batch (more communication, less memory).
"""

from __future__ import annotations

from contracts.adaptor import Engine, Framework, Job
from contracts.shown_as import ShownAs
from contracts.storage import StateStorage
from frameworks.torch.layouts import torch_reason
from workloads.training.training_cell import TrainingCell

FRAMEWORK = Framework(
    version=1,
    environment="torch",
    parallelism=frozenset({"data", "tensor"}),
    options={"data_sharding": ("none", "full"), "accumulate": ("whole", "shards")},
    packages=("torch",),
)


def shown_as() -> ShownAs:
    """Return its name and its colour in tables and figures."""
    return ShownAs("PyTorch TP", style=5)


def unsupported_reason(cell: TrainingCell) -> str | None:
    """None when this adaptor can run the cell, else why not."""
    degree, vocabulary = cell.layout.tensor_parallel, cell.model.vocab_size
    if vocabulary % degree:
        return f"a vocabulary of {vocabulary} cannot be split evenly over {degree} tensor ranks"
    if FRAMEWORK.option(cell, "accumulate") == "shards" and FRAMEWORK.option(cell, "data_sharding") == "none":
        return "accumulate: shards needs data_sharding: full, without which there are no shards"
    return torch_reason(cell)


def stored_state(cell: TrainingCell) -> StateStorage:
    """Tensor shards; without sharding, what replicates them works on a second copy, with it as in torch_fsdp."""
    data = cell.layout.data_parallel
    if FRAMEWORK.option(cell, "data_sharding") == "none":
        return StateStorage(parameter_bytes=4 if data == 1 else 8)
    number = 4 if cell.precision == "fp32" else 2
    accumulates_whole = FRAMEWORK.option(cell, "accumulate") == "whole" and cell.num_micro_batches > 1
    return StateStorage(
        parameter_shards=data,
        gradient_shards=1 if accumulates_whole else data,
        optimizer_shards=data,
        layer_bytes=3 * number + 4,
        ends_bytes=2 * number,
        autocast=False,
    )


def create_engine(job: Job) -> Engine:
    """The model split over tensor ranks and replicated or sharded over data ranks."""
    from frameworks.torch.torch_data_parallel import replicate_shards, shard_fully, synchronised_by_fsdp
    from frameworks.torch.torch_engine import MicroBatches, always_synchronised, optimizer_engine
    from frameworks.torch.torch_model import build_on_meta, make_optimizer, materialize
    from frameworks.torch.torch_setup import start
    from frameworks.torch.torch_tensor_parallel import (
        split_over_tensor_ranks,
        vocabulary_parallel_loss,
        with_parallel_loss,
    )

    cell = job.cell
    runtime = start(job)
    mesh = runtime.mesh(data=cell.layout.data_parallel, tensor=cell.layout.tensor_parallel)
    sharded = FRAMEWORK.option(cell, "data_sharding") == "full"
    model = build_on_meta(cell, autocast=not sharded)
    split_over_tensor_ranks(model, mesh["tensor"])
    synchronised = always_synchronised
    if sharded:
        shard_fully(model, mesh["data"], cell.precision, reshard_after_forward=True)
        if FRAMEWORK.option(cell, "accumulate") == "whole":
            synchronised = synchronised_by_fsdp(model)
    elif cell.layout.data_parallel > 1:
        replicate_shards(model, mesh["data"])
        synchronised = synchronised_by_fsdp(model)
    initial_weights = materialize(model, cell, runtime.device)
    return optimizer_engine(
        runtime,
        cell,
        make_optimizer(model.parameters(), cell),
        with_parallel_loss(MicroBatches(model, cell, synchronised, vocabulary_parallel_loss)),
        initial_weights=initial_weights,
        data_rank=mesh.get_local_rank("data"),
        data_size=cell.layout.data_parallel,
    )
