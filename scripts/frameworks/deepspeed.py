"""DeepSpeed's own engines: ZeRO over the data ranks, or its pipeline (PipelineModule) with data parallelism.

Without pipeline parallelism `zero_stage` says what is sharded over the data ranks: nothing (0), optimizer states (1),
gradients too (2), parameters too (3). With it, consecutive blocks form the stages and DeepSpeed's engine runs its 1F1B
schedule; ZeRO is 0 or 1 then. Stages lie furthest apart (its topology), as in `torch_pipeline`.

`offload` "optimizer" keeps optimizer states and their update on the host (ZeRO-Offload).

Half precision is DeepSpeed's: half-precision weights beside float32 masters, which start from the rounded initial
weights. fp16 has the static loss scale of all frameworks here; a step that an overflow makes DeepSpeed skip is an
error, because it would be timed for nothing. Everything else but clipping stays as DeepSpeed sets it by default, its
throughput timer included: without a pipeline that one waits for the device before and after every micro-batch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from contracts.adaptor import Engine, Framework, Job, NotAvailable
from contracts.shown_as import ShownAs
from contracts.storage import StateStorage
from frameworks.torch.layouts import torch_reason
from models.weights import are_shared
from workloads.training.training_cell import OPTIMIZER, TrainingCell

FRAMEWORK = Framework(
    version=1,
    environment="axonn_paper",
    parallelism=frozenset({"data", "pipeline"}),
    options={"zero_stage": (0, 1, 2, 3), "offload": ("none", "optimizer")},
    packages=("torch", "deepspeed"),
)

# An operator that DeepSpeed compiles on a CPU (a minute) as soon as it communicates, for inference alone.
SHARED_MEMORY_OPERATOR = "deepspeed_shm_comm"


def shown_as() -> ShownAs:
    """Return its name and its colour in tables and figures."""
    return ShownAs("DeepSpeed", style=2)


def unsupported_reason(cell: TrainingCell) -> str | None:
    """None when this adaptor can run the cell, else why not."""
    stages, zero_stage = cell.layout.pipeline_parallel, FRAMEWORK.option(cell, "zero_stage")
    if stages > 1 and zero_stage > 1:
        return f"DeepSpeed's pipeline engine refuses ZeRO 2 and 3, and the layout has zero_stage {zero_stage}"
    if stages > 1 and cell.model.tie_embeddings:
        return "tied embeddings would have to be shared by the first and the last pipeline stage"
    if cell.precision == "fp16" and zero_stage == 0 and cell.device.is_accelerator:
        return (
            "without ZeRO DeepSpeed takes the loss scale off gradients that never had it (deepspeedai/DeepSpeed#8393): "
            "use zero_stage 1, or bf16"
        )
    if FRAMEWORK.option(cell, "offload") == "optimizer":
        if zero_stage == 0:
            return "DeepSpeed offloads the optimizer's states with zero_stage 1, 2 or 3 only"
        if not cell.device.is_accelerator:
            return "offloading moves the optimizer's states from a GPU to the host: on a CPU they are there already"
    return torch_reason(cell)


def stored_state(cell: TrainingCell) -> StateStorage:
    """In half precision weights and gradients in it, float32 masters and Adam's moments; ZeRO has masters in fp32 too.

    ZeRO's buckets have DeepSpeed's default size, 5e8 gradients. ZeRO 3 keeps up to 1e9 parameters gathered besides, and
    copies a bucket to reduce it.
    """
    stage, data = FRAMEWORK.option(cell, "zero_stage"), cell.layout.data_parallel
    number = 4 if cell.precision == "fp32" else 2
    offloads = FRAMEWORK.option(cell, "offload") == "optimizer"
    has_masters = stage > 0 or number == 2
    buffered = (0, 5e8, 5e8, 2 * 5e8 + min(1e9, cell.model.num_parameters))[stage]
    return StateStorage(
        parameter_bytes=number,
        gradient_bytes=number,
        optimizer_bytes=0 if offloads else 12 if has_masters else 8,
        # Without ZeRO its fused optimizer holds the float32 gradients one by one and, for a moment, flat as well.
        step_bytes=0 if offloads or not has_masters else 4 if stage > 0 else 8,
        parameter_shards=data if stage >= 3 else 1,
        gradient_shards=data if stage >= 2 else 1,
        optimizer_shards=data if stage >= 1 else 1,
        buffers_gib=buffered * number / 2**30,
        autocast=False,
    )


def create_engine(job: Job) -> Engine:
    """The model in DeepSpeed's engine: a pipeline's where the layout has stages."""
    from frameworks.torch.torch_engine import TorchEngine, mean_token_loss
    from frameworks.torch.torch_model import LOSS_SCALE
    from frameworks.torch.torch_setup import start

    class DeepSpeedEngine(TorchEngine):
        """Leaves nothing of DeepSpeed's behind: the process may go on with another cell."""

        def close(self) -> None:
            engine.destroy()
            close_deepspeed()
            super().close()

    cell = job.cell
    runtime = start(job)
    replaced = open_deepspeed(runtime.device)
    if FRAMEWORK.option(cell, "offload") == "optimizer":
        require_host_adam()
    fused = all_can_fuse_adam(runtime.device)
    config = engine_config(cell, fused, LOSS_SCALE[cell.precision])
    if cell.layout.pipeline_parallel > 1:
        engine = pipeline_engine(cell, config, mean_token_loss)
        step, report = PipelineStep(engine, cell), lambda: pipeline_speed(engine)
        data_rank = engine.grid.get_data_parallel_rank()
    else:
        engine = zero_engine(cell, config, runtime.device, job.rank)
        step, report = ZeroStep(engine, cell, mean_token_loss), lambda: zero_speed(engine)
        data_rank = job.rank
    forget_empty_step(engine.basic_optimizer)
    return DeepSpeedEngine(
        runtime,
        cell,
        step,
        initial_weights="shared" if are_shared(cell.model) else "native",
        settings={
            "optimizer": optimizer_name(engine.basic_optimizer),
            "optimizer_wrapper": type(engine.optimizer).__name__,
            "loss_scale": LOSS_SCALE[cell.precision],
            "deepspeed_config": json.dumps(config, sort_keys=True),
            **replaced,
        },
        data_rank=data_rank,
        data_size=cell.layout.data_parallel,
        report=report,
    )


@dataclass(frozen=True)
class ZeroStep:
    """One optimizer step of DeepSpeed's engine, which accumulates gradients over the micro-batches it was told of."""

    engine: Any
    cell: TrainingCell
    loss: Callable[[Any, Any], Any]

    def __call__(self, inputs: Any, targets: Any) -> Any:
        size = self.cell.layout.micro_batch_size
        losses = []
        for x, y in zip(inputs.split(size), targets.split(size), strict=True):
            loss = self.loss(self.engine(x), y)
            self.engine.backward(loss)
            self.engine.step()
            losses.append(loss.detach())
        refuse_skipped_steps(self.engine)
        return sum(losses) / len(losses)


@dataclass(frozen=True)
class PipelineStep:
    """One optimizer step through DeepSpeed's pipeline.

    Every rank learns the loss, averaged over the data ranks; those of the last stage return it.
    """

    engine: Any
    cell: TrainingCell

    def __call__(self, inputs: Any, targets: Any) -> Any:
        size = self.cell.layout.micro_batch_size
        micro_batches = zip(inputs.split(size), targets.split(size), strict=True)
        loss = self.engine.train_batch(data_iter=iter(micro_batches))
        refuse_skipped_steps(self.engine)
        return loss if self.engine.is_last_stage() else None


def refuse_skipped_steps(engine: Any) -> None:
    """Raise RuntimeError when the optimizer skipped a step; DeepSpeed has looked for an overflow itself."""
    if engine.skipped_steps:
        raise RuntimeError("DeepSpeed skipped an optimizer step: a gradient overflowed, so the batch trained nothing")


def engine_config(cell: TrainingCell, fused: bool, loss_scale: float) -> dict[str, Any]:
    """DeepSpeed's configuration of a cell, a new one each time; what it does not mention has DeepSpeed's defaults.

    fused: let DeepSpeed choose its own Adam (fused on a GPU, vectorised on the host); torch's fused AdamW otherwise.
    """
    offload = FRAMEWORK.option(cell, "offload") == "optimizer"
    optimizer: dict[str, Any] = {
        "lr": cell.learning_rate,
        "betas": list(OPTIMIZER["betas"]),
        "eps": cell.adam_epsilon,
        "weight_decay": OPTIMIZER["weight_decay"],
    }
    if not fused and not offload:
        optimizer |= {"torch_adam": True, "fused": True}
    zero: dict[str, Any] = {"stage": FRAMEWORK.option(cell, "zero_stage")}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    if zero["stage"] == 3 and cell.activation_checkpointing == "selective":
        # DeepSpeed's linear function adds the bias to the product in place. Selective checkpointing has kept that very
        # product, and the backward pass would add the bias a second time: wrong losses, without a word.
        zero["memory_efficient_linear"] = False
    config: dict[str, Any] = {
        "train_batch_size": cell.global_batch_size,
        "train_micro_batch_size_per_gpu": cell.layout.micro_batch_size,
        "gradient_accumulation_steps": cell.num_micro_batches,
        "optimizer": {"type": "AdamW", "params": optimizer},
        "gradient_clipping": 0.0,  # 1.0 by default; no framework here clips
        "zero_optimization": zero,
    }
    if cell.precision == "bf16":
        config["bf16"] = {"enabled": True}
    if cell.precision == "fp16":
        config["fp16"] = {"enabled": True, "loss_scale": loss_scale}
    return config


def open_deepspeed(device: Any) -> dict[str, str]:
    """Import DeepSpeed for `device` and let it use the process group that is there; returns what was replaced in it."""
    if device.type == "cuda":
        # DeepSpeed takes its device from here; with one visible GPU a process that is not the first has device 0 too.
        os.environ["LOCAL_RANK"] = str(device.index)
    else:
        os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    replaced = {}
    if device.type == "cpu":
        deepspeed.ops.__compatible_ops__[SHARED_MEMORY_OPERATOR] = False
        replaced["deepspeed_without"] = f"{SHARED_MEMORY_OPERATOR}: marked as incompatible, as it is for inference only"
    deepspeed.init_distributed()
    return replaced


def close_deepspeed() -> None:
    """Undo what DeepSpeed changed in the process: its groups, and torch's linear function (ZeRO 3)."""
    import torch
    from deepspeed import comm
    from deepspeed.runtime.zero.partition_parameters import InsertPostInitMethodToModuleSubClasses as ZeroInit

    comm.destroy_process_group()
    torch.nn.functional.linear = getattr(ZeroInit, "linear_bk", torch.nn.functional.linear)


def all_can_fuse_adam(device: Any) -> bool:
    """Whether every rank has DeepSpeed's fused Adam, which it compiles with nvcc at first use; never on a CPU."""
    if device.type == "cpu":
        return False
    import torch
    from deepspeed.ops.op_builder import FusedAdamBuilder

    can = torch.ones((), dtype=torch.int32, device=device)
    try:
        FusedAdamBuilder().load()
    except Exception as error:  # whatever a compiler that is missing or too new leads to
        print(f"DeepSpeed's fused Adam cannot be built, torch's is used: {error}", file=sys.stderr)
        can.zero_()
    torch.distributed.all_reduce(can, torch.distributed.ReduceOp.MIN)
    return bool(can.item())


def require_host_adam() -> None:
    """Compile the Adam that runs on the host, or raise NotAvailable."""
    from deepspeed.ops.op_builder import CPUAdamBuilder

    try:
        CPUAdamBuilder().load()
    except Exception as error:
        raise NotAvailable(f"offload needs DeepSpeed's Adam for the host, which cannot be compiled: {error}") from error


def optimizer_name(optimizer: Any) -> str:
    """For the record: the optimizer that DeepSpeed took, or wrapped."""
    kind = type(optimizer)
    if kind.__module__.startswith("torch."):
        return f"torch.optim.{kind.__name__}(fused=True)"
    return f"deepspeed.ops.adam.{kind.__name__}"


def forget_empty_step(optimizer: Any) -> None:
    """Let the first batch's step be Adam's first.

    DeepSpeed's half-precision optimizers without ZeRO take a step with zero gradients to make their states. It leaves
    the moments at zero but counts, so that Adam's bias correction of every later step is that of the next one: the
    first update is a quarter too small (for ZeRO mended since github.com/deepspeedai/DeepSpeed/pull/5104 was opened).
    """
    for state in optimizer.state.values():
        state["step"] *= 0


def zero_engine(cell: TrainingCell, config: dict[str, Any], device: Any, rank: int) -> Any:
    """DeepSpeed's engine over the whole model. With ZeRO 3 no rank ever holds more than one layer of it."""
    import deepspeed

    from frameworks.torch.decoder import GPT
    from frameworks.torch.torch_model import build_on_meta, initialize, materialize

    if FRAMEWORK.option(cell, "zero_stage") == 3:
        with deepspeed.zero.Init(config_dict_or_path=config):
            model = GPT(cell.model, checkpointing=cell.activation_checkpointing)
        for name, parameter in model.named_parameters():
            with deepspeed.zero.GatheredParameters(parameter, modifier_rank=0):
                if rank == 0:
                    initialize(parameter, cell, name)
    else:
        model = build_on_meta(cell, autocast=False)
        materialize(model, cell, device)
    engine, *_ = deepspeed.initialize(model=model, config=config)
    return engine


def pipeline_engine(cell: TrainingCell, config: dict[str, Any], loss: Callable[[Any, Any], Any]) -> Any:
    """DeepSpeed's pipeline engine; each rank builds its own stage.

    Layers are the embeddings, the blocks, and final norm with head; stages get equal numbers of blocks. Full activation
    checkpointing is DeepSpeed's own, per block; selective is the block's.
    """
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule

    from frameworks.torch.decoder import GPT, Block
    from frameworks.torch.torch_model import initialize

    model, checkpointing = cell.model, cell.activation_checkpointing
    per_block = "none" if checkpointing == "full" else checkpointing
    layers = model.num_layers
    module = PipelineModule(
        [
            LayerSpec(GPT, model, blocks=range(0)),
            *(LayerSpec(Block, model.hidden_size, model.num_heads, per_block) for _ in range(layers)),
            LayerSpec(GPT, model, blocks=range(layers, layers)),
        ],
        num_stages=cell.layout.pipeline_parallel,
        loss_fn=loss,
        partition_method="type:Block",
        activation_checkpoint_interval=int(checkpointing == "full"),
        checkpointable_layers=["Block"],
    )
    for name, parameter in module.named_parameters():
        initialize(parameter, cell, parameter_name(name, layers))
    engine, *_ = deepspeed.initialize(model=module, config=config)
    return engine


def parameter_name(pipeline_name: str, num_layers: int) -> str:
    """Our name of a parameter that a PipelineModule calls `<layer>.<name in the layer>`, blocks being 1 to num_layers.

    "4.attention.query.weight" -> "blocks.3.attention.query.weight", "0.token_embedding.weight" ->
    "token_embedding.weight".
    """
    layer, _, name = pipeline_name.partition(".")
    return f"blocks.{int(layer) - 1}.{name}" if 0 < int(layer) <= num_layers else name


def zero_speed(engine: Any) -> Mapping[str, float]:
    """What DeepSpeed prints as RunningAvgSamplesPerSec: all ranks' sequences per second without the first two steps.

    The time is that from a micro-batch's forward pass to its end, the optimizer step with the last one.
    """
    return {"samples_per_s": engine.tput_timer.avg_samples_per_sec()}


def pipeline_speed(engine: Any) -> Mapping[str, float]:
    """What DeepSpeed's pipeline prints as samples/sec, from its own timer of whole batches.

    The mean leaves out the shortest and the longest tenth (DeepSpeed's way), so the first batch.
    """
    milliseconds = float(engine.timers("train_batch").mean())
    return {"samples_per_s": 1000 * engine.train_batch_size() / milliseconds}
