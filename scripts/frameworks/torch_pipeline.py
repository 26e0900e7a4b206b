"""PyTorch pipeline parallelism (`torch.distributed.pipelining`), with data parallelism (DDP) over the rest.

Consecutive blocks form the stages, one stage a rank; the micro-batches are those of gradient accumulation. Stages lie
furthest apart: they exchange one activation per micro-batch, data ranks exchange all gradients.

`schedule`: "1f1b" alternates forward and backward passes, so that a stage holds as many micro-batches' activations as
stages follow it; "gpipe" runs all forward passes first and holds all of them.
"""

from __future__ import annotations

from contracts.adaptor import Engine, Framework, Job
from contracts.shown_as import ShownAs
from contracts.storage import StateStorage, ddp_gradient_bytes
from frameworks.torch.layouts import torch_reason
from models.gpt import stage_blocks
from workloads.training.training_cell import TrainingCell

FRAMEWORK = Framework(
    version=1,
    environment="torch",
    parallelism=frozenset({"data", "pipeline"}),
    options={"schedule": ("1f1b", "gpipe")},
    packages=("torch",),
    uneven_stages=True,
)


def shown_as() -> ShownAs:
    """Return its name and its colour in tables and figures."""
    return ShownAs("PyTorch PP", style=6)


def unsupported_reason(cell: TrainingCell) -> str | None:
    """None when this adaptor can run the cell, else why not."""
    stages, micro_batches = cell.layout.pipeline_parallel, cell.num_micro_batches
    if cell.model.tie_embeddings and stages > 1:
        return "tied embeddings would have to be shared by the first and the last pipeline stage"
    if FRAMEWORK.option(cell, "schedule") == "1f1b" and micro_batches < stages:
        return f"1F1B needs at least as many micro-batches as stages: there are {micro_batches} and {stages}"
    return torch_reason(cell)


def stored_state(cell: TrainingCell) -> StateStorage:
    """As the default, with as many micro-batches in flight as the schedule has, and DDP's buckets over data ranks.

    torch.distributed.pipelining (2.13: PipelineStage in its stage.py) makes a buffer for every micro-batch that a stage
    receives and keeps all of them from the first step on. What the last stage puts out is not kept: the schedule is
    asked for no outputs.
    """
    return StateStorage(
        gradient_bytes=ddp_gradient_bytes(cell) if cell.layout.data_parallel > 1 else 4.0,
        schedule=FRAMEWORK.option(cell, "schedule"),
        buffer_per_micro_batch=True,
    )


def create_engine(job: Job) -> Engine:
    """This rank's stage and its place in the schedule."""
    from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe

    from frameworks.torch.torch_data_parallel import replicate_with_ddp
    from frameworks.torch.torch_engine import optimizer_engine
    from frameworks.torch.torch_model import build_on_meta, make_optimizer, materialize
    from frameworks.torch.torch_pipelining import PipelineBatches, pipeline_stage, scaled_loss
    from frameworks.torch.torch_setup import start

    cell, stages = job.cell, job.cell.layout.pipeline_parallel
    runtime = start(job)
    mesh = runtime.mesh(pipeline=stages, data=cell.layout.data_parallel)
    index = mesh.get_local_rank("pipeline")
    model = build_on_meta(cell, blocks=stage_blocks(cell.model, cell.layout, index))
    initial_weights = materialize(model, cell, runtime.device)
    optimizer = make_optimizer(model.parameters(), cell)
    if cell.layout.data_parallel > 1:
        model = replicate_with_ddp(model, runtime.device, mesh.get_group("data"))
    stage = pipeline_stage(model, cell, index, runtime.device, mesh.get_group("pipeline"))
    schedule_type = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}[FRAMEWORK.option(cell, "schedule")]
    schedule = schedule_type(stage, cell.num_micro_batches, loss_fn=scaled_loss(cell), scale_grads=False)
    return optimizer_engine(
        runtime,
        cell,
        optimizer,
        PipelineBatches(schedule, cell, stage.is_first, stage.is_last),
        initial_weights=initial_weights,
        data_rank=mesh.get_local_rank("data"),
        data_size=cell.layout.data_parallel,
    )
