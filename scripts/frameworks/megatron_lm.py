"""Megatron-LM: megatron-core's GPT model, schedules, data parallelism and optimizer.

Neighbouring ranks form a tensor group, neighbouring tensor groups a data group, and pipeline stages lie furthest apart:
Megatron's own order. Stages work in the 1F1B schedule; fewer micro-batches than stages only leave some of them idle.
Tied embeddings are two copies, on the first and the last stage, whose gradients Megatron adds up.

`virtual_stages`: how many chunks of layers a pipeline rank holds; above 1 the schedule is the interleaved one.
`distributed_optimizer`: optimizer states sharded over the data ranks.
`sequence_parallel`: what tensor ranks would all compute (norms, residual sums) split along the sequence.

Half precision is Megatron's: weights and activations in it, float32 weights and states in the optimizer. On CUDA layers
are Transformer Engine's where it is installed, else Megatron's own ("local"). A CPU run is for correctness: fp32 only,
no fused kernels, and `frameworks/torch/cuda_stand_in.py` in CUDA's place.

Megatron itself waits for the device within a step: after every transfer of the 1F1B schedule, and in fp16 to look for
overflows. It prints its speed only in pretrain_gpt.py, which is no part of megatron-core: there is none to report.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from contracts.adaptor import Engine, Framework, Job, NotAvailable
from contracts.shown_as import ShownAs
from contracts.storage import StateStorage
from frameworks.torch.layouts import torch_reason
from frameworks.torch.megatron_weights import load_shared_weights
from models.weights import STANDARD_DEVIATION, are_shared
from workloads.training.training_cell import OPTIMIZER, TrainingCell

if TYPE_CHECKING:
    from torch import Tensor

    from frameworks.torch.torch_setup import Runtime

FRAMEWORK = Framework(
    version=1,
    environment="axonn_paper",
    parallelism=frozenset({"data", "tensor", "pipeline"}),
    options={
        "virtual_stages": (1, 2, 3, 4, 6, 8, 12),
        "distributed_optimizer": (False, True),
        "sequence_parallel": (False, True),
    },
    packages=("torch", "megatron-core", "transformer-engine"),
)

# Kernels that Apex builds, by the option that needs them.
APEX_KERNELS = {
    "masked_softmax_fusion": ("scaled_upper_triang_masked_softmax_cuda", "scaled_masked_softmax_cuda"),
    "gradient_accumulation_fusion": ("fused_weight_gradient_mlp_cuda",),
}
RECOMPUTATION = {
    "none": {},
    "selective": {"recompute_granularity": "selective"},  # attention between its projections
    "full": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
}


def shown_as() -> ShownAs:
    """Return its name and its colour in tables and figures."""
    return ShownAs("Megatron-LM", style=1)


def unsupported_reason(cell: TrainingCell) -> str | None:
    """None when this adaptor can run the cell, else why not."""
    if not cell.device.is_accelerator and cell.precision in ("bf16", "fp16"):
        return f"on a CPU Megatron-LM runs for correctness, in fp32: {cell.precision} needs a GPU"
    return torch_reason(cell) or _tensor_reason(cell) or _virtual_stages_reason(cell)


def _tensor_reason(cell: TrainingCell) -> str | None:
    degree, vocabulary, tokens = cell.layout.tensor_parallel, cell.model.vocab_size, cell.model.seq_length
    if vocabulary % degree:
        return f"a vocabulary of {vocabulary} cannot be split evenly over {degree} tensor ranks"
    if not FRAMEWORK.option(cell, "sequence_parallel"):
        return None
    if degree == 1:
        return "sequence parallelism splits sequences over the tensor ranks, and there is only one"
    if tokens % degree:
        return f"sequences of {tokens} tokens cannot be split evenly over {degree} tensor ranks"
    if cell.device.is_accelerator:
        return None
    return "sequence parallelism needs Transformer Engine, and that needs a GPU"


def _virtual_stages_reason(cell: TrainingCell) -> str | None:
    virtual, stages = FRAMEWORK.option(cell, "virtual_stages"), cell.layout.pipeline_parallel
    layers, micro_batches = cell.model.num_layers, cell.num_micro_batches
    if virtual == 1:
        return None
    if stages == 1:
        return f"{virtual} virtual stages need pipeline parallelism, and there is only one stage"
    if layers % (stages * virtual):
        return f"{layers} layers are not divisible by {stages} pipeline stages x {virtual} virtual stages"
    if micro_batches % stages:
        return f"virtual stages need micro-batches divisible by stages: there are {micro_batches} and {stages}"
    return None


def fusions(on_cuda: bool) -> dict[str, bool]:
    """Which of Megatron's fused operations to use. Its fused GELU is the tanh form, as ours is.

    The fused cross-entropy is left out: it rounds gradients to bf16, whatever the cell's precision.
    """
    built = {name: all(map(importlib.util.find_spec, kernels)) for name, kernels in APEX_KERNELS.items()}
    available = {"bias_activation_fusion": True, "bias_dropout_fusion": True, **built}
    return {name: on_cuda and there for name, there in available.items()}


@dataclass(frozen=True)
class MegatronStep:
    """One optimizer step (see `frameworks.torch.torch_engine.Step`) by Megatron's schedule and optimizer.

    chunks: this rank's virtual stages, wrapped for data parallelism. positions: int64 [micro-batch size, seq_length].
    """

    cell: TrainingCell
    chunks: list[Any]
    optimizer: Any
    schedule: Callable[..., list[Tensor]]
    positions: Tensor

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor | None:
        size = self.cell.layout.micro_batch_size
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        micro_batches = list(zip(inputs.split(size), targets.split(size), strict=True))
        losses = self.schedule(
            forward_step_func=self._forward,
            data_iterator=[iter(micro_batches) for _ in self.chunks],
            model=self.chunks,
            num_microbatches=self.cell.num_micro_batches,
            seq_length=self.cell.model.seq_length,
            micro_batch_size=size,
        )
        if not self.optimizer.step()[0]:
            raise RuntimeError("Megatron's optimizer skipped a step (gradients overflowed): its time would say nothing")
        return sum(losses) / len(losses) if losses else None

    def _forward(self, micro_batches: Any, chunk: Any) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Every token's loss from the last stage, activations from the others; attention is causal without a mask."""
        inputs, targets = next(micro_batches)
        return chunk(inputs, self.positions, None, labels=targets), _mean_and_copy


def _mean_and_copy(token_losses: Tensor) -> tuple[Tensor, Tensor]:
    """What to differentiate and what to report; a copy, because the schedule scales the first one in place."""
    mean = token_losses.mean()
    return mean, mean.detach().clone()


def stored_state(cell: TrainingCell) -> StateStorage:
    """In half precision weights, gradients added up in it (bf16: in float32), float32 masters and Adam's two moments.

    In fp32 the optimizer works on the weights themselves. Megatron's own layers keep attention's scores as softmax puts
    them out, in float32, and once more in half precision.
    """
    sharded = FRAMEWORK.option(cell, "distributed_optimizer")
    half = cell.precision != "fp32"
    gradient_bytes = 2 if cell.precision == "fp16" else 4
    return StateStorage(
        parameter_bytes=2 if half else 4,
        gradient_bytes=gradient_bytes,
        optimizer_bytes=12 if half else 8,
        step_bytes=4 if gradient_bytes == 2 else 0,
        optimizer_shards=cell.layout.data_parallel if sharded else 1,
        autocast=False,
        attention_score_bytes=6 if half else 4,
        selective="attention",
        sequence_parallel=FRAMEWORK.option(cell, "sequence_parallel"),
        virtual_stages=FRAMEWORK.option(cell, "virtual_stages"),
    )


def create_engine(job: Job) -> Engine:
    """This rank's part of the model, as Megatron lays it out."""
    if importlib.util.find_spec("megatron") is None:  # before anything is stood in for
        raise ModuleNotFoundError("No module named 'megatron'", name="megatron")
    cell, on_cuda = job.cell, job.cell.device.is_accelerator
    variables = _set_cuda_variables(cell) if on_cuda else {}

    import torch

    from frameworks.torch.cuda_stand_in import stand_in
    from frameworks.torch.torch_engine import TorchEngine
    from frameworks.torch.torch_model import LOSS_SCALE
    from frameworks.torch.torch_setup import start

    runtime = start(job)
    replaced = stand_in("megatron-core")
    if not on_cuda and replaced is None:
        raise NotAvailable("Megatron-LM would take the GPU that torch sees: hide it from cells that run on the CPU")

    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import get_forward_backward_func

    fused = fusions(on_cuda)
    config = _model_config(cell, fused)
    _join_groups(config, cell.seed)
    layers, spec = _layer_spec(cell)
    chunks, optimizer = _make_trainable(cell, _build_models(cell, config, spec, runtime))
    positions = torch.arange(cell.model.seq_length, device=runtime.device).expand(cell.layout.micro_batch_size, -1)
    return TorchEngine(
        runtime,
        cell,
        MegatronStep(cell, chunks, optimizer, get_forward_backward_func(), positions),
        initial_weights="shared" if are_shared(cell.model) else "native",
        settings={
            "layer_spec": layers,
            "fusions": ", ".join(name for name, used in fused.items() if used) or "none",
            "optimizer": f"{type(optimizer).__name__} with {type(optimizer.optimizer).__name__}",
            "loss_scale": LOSS_SCALE[cell.precision],
            **variables,
            **({"cuda_stand_in": replaced} if replaced else {}),
        },
        data_rank=parallel_state.get_data_parallel_rank(),
        data_size=parallel_state.get_data_parallel_world_size(),
    )


def _set_cuda_variables(cell: TrainingCell) -> dict[str, str]:
    """Variables that CUDA reads when it starts, for the record; what the user set stays."""
    wanted = {}
    if cell.layout.tensor_parallel > 1:
        wanted["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"  # Megatron's overlap needs kernels to start in order of launch
    if cell.precision == "fp32":
        wanted["NVIDIA_TF32_OVERRIDE"] = "0"  # Transformer Engine multiplies float32 in TF32, whatever torch is told
    return {name: os.environ.setdefault(name, value) for name, value in wanted.items()}


def _join_groups(config: Any, seed: int) -> None:
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

    from frameworks.torch.torch_setup import COLLECTIVE_TIMEOUT

    parallel_state.destroy_model_parallel()  # of a cell that this process trained before
    parallel_state.initialize_model_parallel(
        config.tensor_model_parallel_size,
        config.pipeline_model_parallel_size,
        config.virtual_pipeline_model_parallel_size,
        distributed_timeout_minutes=int(COLLECTIVE_TIMEOUT.total_seconds() // 60),
        create_gloo_process_groups=False,  # they are for checkpoints
    )
    # Tensor ranks, which Megatron tells apart itself, and stages draw different weights, data ranks the same ones.
    model_parallel_cuda_manual_seed(seed + 100 * parallel_state.get_pipeline_model_parallel_rank())


def _layer_spec(cell: TrainingCell) -> tuple[str, Any]:
    """Whose layers to use, by name and as Megatron wants it; raises NotAvailable where the cell cannot have them."""
    from megatron.core.models.gpt import gpt_layer_specs as specs

    if not cell.device.is_accelerator and (specs.HAVE_TE or specs.HAVE_APEX):
        raise NotAvailable("with Transformer Engine or Apex installed, as here, Megatron-LM trains on GPUs only")
    if specs.HAVE_TE:
        return "transformer_engine", specs.get_gpt_layer_with_transformer_engine_spec()
    if FRAMEWORK.option(cell, "sequence_parallel"):
        raise NotAvailable("sequence parallelism needs Transformer Engine: pip install transformer-engine[pytorch]")
    return "local", specs.get_gpt_layer_local_spec()


def _build_models(cell: TrainingCell, config: Any, layer_spec: Any, runtime: Runtime) -> list[Any]:
    """A GPTModel for each virtual stage of this rank, with its initial weights."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel

    virtual = config.virtual_pipeline_model_parallel_size
    models = []
    for stage in range(virtual) if virtual else (None,):
        model = GPTModel(
            config,
            layer_spec,
            cell.model.vocab_size,
            cell.model.seq_length,
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
            share_embeddings_and_output_weights=cell.model.tie_embeddings,
            vp_stage=stage,
        ).to(runtime.device)
        if are_shared(cell.model):
            load_shared_weights(model, cell, parallel_state.get_tensor_model_parallel_rank())
        models.append(model)
    return models


def _model_config(cell: TrainingCell, fused: Mapping[str, bool]) -> Any:
    """Megatron's configuration of the model in frameworks/torch/decoder.py, in the cell's layout and precision."""
    import torch
    import torch.nn.functional as F
    from megatron.core.transformer import TransformerConfig
    from megatron.core.utils import init_method_normal

    from frameworks.torch.decoder import NORM_EPSILON
    from frameworks.torch.torch_setup import half_type

    number_type = half_type(cell.precision) or torch.float32
    virtual = FRAMEWORK.option(cell, "virtual_stages")
    return TransformerConfig(
        num_layers=cell.model.num_layers,
        hidden_size=cell.model.hidden_size,
        num_attention_heads=cell.model.num_heads,
        layernorm_epsilon=NORM_EPSILON,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_func=F.gelu if fused["bias_activation_fusion"] else partial(F.gelu, approximate="tanh"),
        perform_initialization=not are_shared(cell.model),
        use_cpu_initialization=not cell.device.is_accelerator,
        init_method=init_method_normal(STANDARD_DEVIATION),
        output_layer_init_method=init_method_normal(STANDARD_DEVIATION),
        tensor_model_parallel_size=cell.layout.tensor_parallel,
        pipeline_model_parallel_size=cell.layout.pipeline_parallel,
        virtual_pipeline_model_parallel_size=virtual if virtual > 1 else None,
        sequence_parallel=FRAMEWORK.option(cell, "sequence_parallel"),
        overlap_p2p_comm=virtual > 1,  # this and the next two as in pretrain_gpt.py
        batch_p2p_comm=virtual == 1,
        deallocate_pipeline_outputs=virtual == 1 or cell.device.is_accelerator,  # gloo reads what it still sends
        params_dtype=number_type,
        pipeline_dtype=number_type,
        bf16=cell.precision == "bf16",
        fp16=cell.precision == "fp16",
        **fused,
        **RECOMPUTATION[cell.activation_checkpointing],
    )


def _make_trainable(cell: TrainingCell, models: Sequence[Any]) -> tuple[list[Any], Any]:
    """The models in Megatron's data parallelism and its optimizer, put together as in pretrain_gpt.py."""
    import torch
    from megatron.core import distributed
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.module import Float16Module

    from frameworks.torch.torch_model import LOSS_SCALE

    config = models[0].config
    sharded = FRAMEWORK.option(cell, "distributed_optimizer")
    overlapping = cell.device.is_accelerator and cell.layout.data_parallel > 1
    reduction = distributed.DistributedDataParallelConfig(
        grad_reduce_in_fp32=config.bf16,
        overlap_grad_reduce=overlapping,
        overlap_param_gather=overlapping and sharded,
        use_distributed_optimizer=sharded,
    )
    if cell.precision != "fp32":
        models = [Float16Module(config, model) for model in models]
    chunks = [
        distributed.DistributedDataParallel(config, reduction, model, disable_bucketing=index > 0)
        for index, model in enumerate(models)
    ]
    beta1, beta2 = OPTIMIZER["betas"]
    optimizer_config = OptimizerConfig(  # Adam, with the decay decoupled as in AdamW
        lr=cell.learning_rate,
        adam_beta1=beta1,
        adam_beta2=beta2,
        adam_eps=cell.adam_epsilon,
        weight_decay=OPTIMIZER["weight_decay"],
        clip_grad=0.0,
        params_dtype=config.params_dtype,
        bf16=config.bf16,
        fp16=config.fp16,
        loss_scale=LOSS_SCALE["fp16"] if config.fp16 else None,
        use_distributed_optimizer=sharded,
        overlap_param_gather=overlapping and sharded,
    )
    # One for all parameters. The chain around it would compute the gradients' norm in every step, and wait for it,
    # though nothing is clipped.
    (optimizer,) = get_megatron_optimizer(optimizer_config, chunks, use_gloo_process_groups=False).chained_optimizers
    if type(optimizer.optimizer) is torch.optim.AdamW:
        # What Megatron takes without Transformer Engine or Apex; fused as in the other frameworks, and without a copy.
        for group in optimizer.optimizer.param_groups:
            group["fused"] = True
    config.finalize_model_grads_func = distributed.finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    if overlapping:
        no_sync, start = [chunk.no_sync for chunk in chunks], [chunk.start_grad_sync for chunk in chunks]
        config.no_sync_func, config.grad_sync_func = (no_sync, start) if len(chunks) > 1 else (no_sync[0], start[0])
    return chunks, optimizer
