"""AxoNN: an asynchronous, message-driven pipeline over MPI, with data and four-dimensional tensor parallelism.

The pipeline, the order of its forward and backward passes, the gradients' reduction and the optimizer step are those of
AxoNN's engine (`AxoNN_Inter_Layer_Engine`, arXiv:2110.13005). With tensor parallelism the layers' products are AxoNN's
`Linear` (arXiv:2305.13525), as its expert mode wants it: attention and feed-forward divided by heads and inner width.
Token and position embeddings are whole on every tensor rank. Ranks of one tensor group are neighbours, then the stages.

`columns`: of the tensor ranks, so many divide the width that enters a product; the others, rows, divide what leaves it.
`depth`: of the data ranks, so many share the products' weights among them, as in ZeRO-3; each has a batch of its own.

On GPUs the pipeline hands device memory to MPI, which must be CUDA-aware. The optimizer with its state in host memory
(`axonn.optim.CPUAdam`) is no option here: AxoNN 0.2.0 no longer has the module variables it reads.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from contracts.adaptor import Engine, Framework, Job, NotAvailable
from contracts.shown_as import ShownAs
from contracts.storage import StateStorage
from frameworks.torch.layouts import torch_reason
from workloads.training.training_cell import TrainingCell

FRAMEWORK = Framework(
    version=1,
    environment="axonn_paper",
    parallelism=frozenset({"data", "tensor", "pipeline"}),
    options={"columns": (1, 2, 4, 8), "depth": (1, 2, 4, 8, 12, 16, 24, 32, 48, 96)},
    packages=("torch", "axonn", "mpi4py", "mpich"),
    untraced_communication=True,
    mpi=True,
)

# The products that leave whole what the others have left divided by rows.
JOINING = ("attention.output", "feed_forward.down")


def shown_as() -> ShownAs:
    """Return its name and its colour in tables and figures."""
    return ShownAs("AxoNN", style=0)


def unsupported_reason(cell: TrainingCell) -> str | None:
    """None when this adaptor can run the cell, else why not."""
    model, layout = cell.model, cell.layout
    tensor, columns, depth = layout.tensor_parallel, *(FRAMEWORK.option(cell, name) for name in ("columns", "depth"))
    if tensor % columns:
        return f"{columns} columns do not divide {tensor} tensor ranks"
    if layout.data_parallel % depth:
        return f"a depth of {depth} does not divide {layout.data_parallel} data ranks"
    rows = tensor // columns
    if model.hidden_size % tensor or (model.hidden_size // rows) * (model.hidden_size // columns) % depth:
        return f"weights of width {model.hidden_size} cannot be cut evenly into {rows} x {columns} x {depth} parts"
    if model.vocab_size % rows or (model.vocab_size // rows) * (model.hidden_size // columns) % depth:
        return f"a vocabulary of {model.vocab_size} cannot be cut evenly into {rows} x {columns} x {depth} parts"
    if depth > 1 and layout.pipeline_parallel > 1:
        return (
            "AxoNN 0.2.0 gathers a weight into itself, which torch takes for a change, so no second micro-batch may be "
            "on its way: a depth above 1 goes with one pipeline stage"
        )
    if tensor > 1 and layout.pipeline_parallel > 2:
        return (
            "between AxoNN's first and last stage messages are taken as they arrive, on each tensor rank by itself, so "
            "that their reductions may meet in different orders and add up what does not belong together"
        )
    if layout.pipeline_parallel > 1 and cell.num_micro_batches < 2:
        return "AxoNN's pipeline needs at least two micro-batches: with one it never asks for the first message"
    if model.tie_embeddings and (layout.pipeline_parallel > 1 or tensor * depth > 1):
        return "AxoNN has no embeddings tied to a divided head"
    if cell.activation_checkpointing == "selective" and tensor * depth > 1:
        return (
            "AxoNN reduces a product's result in place, so one that selective checkpointing has kept would be reduced "
            "twice; use full or none"
        )
    if not cell.device.is_accelerator and cell.precision != "fp32":
        return f"AxoNN casts on CUDA only; on a CPU it trains in fp32, not {cell.precision}"
    return torch_reason(cell)


def stored_state(cell: TrainingCell) -> StateStorage:
    """Autocast over float32 weights. Depth ranks share the weights of the products, gathered one by one when used."""
    depth = FRAMEWORK.option(cell, "depth")
    return StateStorage(
        parameter_shards=depth,
        gradient_shards=depth,
        optimizer_shards=depth,
        # The parts that arrive and the whole made of them.
        matrix_bytes=None if depth == 1 else 12 if cell.precision == "fp32" else 8,
        only_products_are_cut=True,
        logits_are_cut=False,
        saves_uncast_inputs=cell.layout.tensor_parallel * depth > 1,
    )


def create_engine(job: Job) -> Engine:
    """This rank's stage, its part of the products, and AxoNN's engine around them."""
    stand_in = _start_mpi(job)
    import torch
    from axonn import axonn as ax
    from axonn.inter_layer import AxoNN_Inter_Layer_Engine

    from frameworks.torch.torch_engine import TorchEngine, mean_token_loss
    from frameworks.torch.torch_model import make_optimizer
    from frameworks.torch.torch_setup import half_type, start

    cell, layout = job.cell, job.cell.layout
    runtime = start(job)
    columns, depth = FRAMEWORK.option(cell, "columns"), FRAMEWORK.option(cell, "depth")
    ax.init(
        G_inter=layout.pipeline_parallel,
        G_data=layout.data_parallel // depth,
        G_intra_r=layout.tensor_parallel // columns,
        G_intra_c=columns,
        G_intra_d=depth,
        gpus_per_node=_gpus_per_node(),
    )
    if runtime.device.type == "cuda":
        # AxoNN has chosen the GPU by the rank's number, which is another where nodes have unequal numbers of ranks.
        torch.cuda.set_device(runtime.device)
    ax.config.micro_batch_size = layout.micro_batch_size
    model, initial_weights = _build(cell, ax, runtime.device)
    engine = AxoNN_Inter_Layer_Engine(model, mean_token_loss, half_type(cell.precision) or torch.float32)
    if runtime.device.type == "cuda" and layout.pipeline_parallel > 1:
        _wait_before_receiving(engine)
    # AxoNN takes its own loss scale off the gradients, so the optimizer sees true ones.
    optimizer = make_optimizer(model.parameters(), cell, gradients_are_scaled=False)
    settings: dict[str, Any] = {
        "optimizer": "torch.optim.AdamW(fused=True)",
        "loss_scale": engine.scaler.loss_scale if cell.precision == "fp16" else 1.0,
        "mpi_library": _mpi_library(),
    }
    return TorchEngine(
        runtime,
        cell,
        _step(engine, optimizer, is_last=ax.config.inter_layer_parallel_rank == layout.pipeline_parallel - 1),
        initial_weights=initial_weights,
        settings=settings | ({"cuda_stand_in": stand_in} if stand_in else {}),
        data_rank=depth * ax.config.data_parallel_rank + ax.config.intra_layer_depth_parallel_rank,
        data_size=layout.data_parallel,
    )


def _start_mpi(job: Job) -> str | None:
    """What stands in for CUDA, or None; with MPI started, which must number the ranks as the launcher does."""
    from frameworks.torch.cuda_stand_in import stand_in

    standing_in = None if job.cell.device.is_accelerator else stand_in("axonn")
    try:
        import mpi4py

        # Before MPI is loaded: AxoNN wants it not started by then, and a rank that leaves without an orderly end takes
        # the others with it.
        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise NotAvailable(
            f"AxoNN sends over MPI, and mpi4py cannot load it ({str(error).splitlines()[0]}): pip install mpi4py mpich "
            f"in its environment, or load the site's MPI in `setup` of the system file"
        ) from error
    if not MPI.Is_initialized():
        MPI.Init()
    place = (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size())
    if place != (job.rank, job.world_size):
        raise NotAvailable(
            f"MPI calls rank {job.rank} of {job.world_size} rank {place[0]} of {place[1]}: the MPI library that mpi4py "
            f"loads is another one than that of mpiexec or of `srun --mpi`; `slurm.mpi` in the system file says which"
        )
    return standing_in


def _mpi_library() -> str:
    from mpi4py import MPI

    return MPI.Get_library_version().splitlines()[0].strip()


def _gpus_per_node() -> int:
    """What AxoNN divides ranks by to find their GPU; 1 where the scheduler shows each process its own GPU only."""
    import torch

    return 1 if torch.cuda.device_count() == 1 else int(os.environ["LOCAL_WORLD_SIZE"])


def _step(engine: Any, optimizer: Any, *, is_last: bool) -> Callable[[Any, Any], Any]:
    """AxoNN's own optimizer step; only the last stage knows the loss."""
    import torch
    from axonn.intra_layer import optimize_communication

    def step(inputs: Any, targets: Any) -> Any:
        scale = engine.scaler.loss_scale
        optimizer.zero_grad(set_to_none=True)
        with warnings.catch_warnings(), optimize_communication(overlap_all_reduce=True):
            # AxoNN asks for CUDA's autocast whatever the device and type.
            warnings.filterwarnings("ignore", message=".*autocast.*")
            loss = engine.forward_backward_optimizer(inputs, targets, optimizer)
        if engine.scaler.loss_scale < scale:
            raise RuntimeError(
                f"AxoNN skipped an optimizer step (a gradient overflowed at a loss scale of {scale:g}), and a skipped "
                f"step must not be timed as one; use bf16 or another seed"
            )
        return torch.tensor(loss) if is_last else None

    return step


def _wait_before_receiving(engine: Any) -> None:
    """Let the GPU finish before a buffer for the next gradient is taken.

    The allocator may give out memory that queued kernels still read, which is right for later kernels of the stream and
    wrong for MPI, which writes at once. AxoNN waits before it sends, and the first stage sends no gradients.
    """
    import torch

    receive = engine._post_bw_recv_requests

    def wait_and_receive(*arguments: Any, **options: Any) -> Any:
        torch.cuda.current_stream().synchronize()
        return receive(*arguments, **options)

    engine._post_bw_recv_requests = wait_and_receive


def _build(cell: TrainingCell, ax: Any, device: Any) -> tuple[Any, str]:
    """This rank's stage with its initial weights on `device`, and where those came from."""
    from torch import nn

    from frameworks.torch.torch_model import build_on_meta, materialize
    from models.gpt import stage_blocks
    from models.weights import are_shared

    blocks = stage_blocks(cell.model, cell.layout, ax.config.inter_layer_parallel_rank)
    model = build_on_meta(cell, blocks=blocks, autocast=False)
    shape = [-1, cell.model.seq_length, cell.model.hidden_size]
    model.get_input_shape = model.get_output_shape = lambda: shape
    if ax.config.G_intra == 1:
        return model, materialize(model, cell, device)
    products = _products(model)
    for name in products:
        model.set_submodule(name, nn.Identity())
    initial_weights = materialize(model, cell, device)
    for name, product in products.items():
        if are_shared(cell.model):
            _load_shared(product, name, cell)
        model.set_submodule(name, product.to(device))
    _exchange_columns(model, ax.comm_handle)
    return model, initial_weights


def _products(model: Any) -> dict[str, Any]:
    """AxoNN's counterpart of every linear layer of the stage, by its name; weights drawn as large models need them."""
    from functools import partial

    from axonn.intra_layer import Linear
    from torch import nn

    from models.weights import STANDARD_DEVIATION

    draw = partial(nn.init.normal_, std=STANDARD_DEVIATION)
    products = {}
    for name, layer in model.named_modules():
        if not isinstance(layer, nn.Linear):
            continue
        product = Linear(
            layer.in_features,
            layer.out_features,
            bias=layer.bias is not None,
            transpose=name.endswith(JOINING),
            init_method=draw,
            expert_mode=True,
        )
        if product.bias is not None:
            # AxoNN 0.2.0 reduces a divided parameter's gradient over the depth only where it finds this name, and its
            # Linear marks the bias under another one: every depth rank would go on with a bias of its own.
            product.bias.needs_gradient_sync = True
        products[name] = product
    return products


def _load_shared(product: Any, name: str, cell: TrainingCell) -> None:
    """The framework-neutral initial weights, of which AxoNN takes this rank's part."""
    import torch

    from models.weights import initial_weight

    parts = [part for part, _ in product.named_parameters()]
    product.load_state_dict(
        {part: torch.from_numpy(initial_weight(cell.model, cell.seed, f"{name}.{part}")) for part in parts}
    )


def _exchange_columns(model: Any, groups: Any) -> None:
    """Between the products everything is whole: take this column's share of what enters them, gather what leaves them.

    The logits are gathered over the rows, which divide the vocabulary; every tensor rank computes the same loss.
    """
    from axonn.intra_layer import Drop, Gather

    columns, rows = groups.inner_intra_layer_parallel_group, groups.outer_intra_layer_parallel_group

    def divide(_module: Any, _given: Any, output: Any) -> Any:
        return Drop.apply(output, columns)

    def join(_module: Any, _given: Any, output: Any) -> Any:
        return Gather.apply(output, columns)

    for block in model.blocks.values():
        block.attention_norm.register_forward_hook(divide)
        block.feed_forward_norm.register_forward_hook(divide)
        block.attention.output.register_forward_hook(join)
        block.feed_forward.down.register_forward_hook(join)
    if model.head is not None:
        model.final_norm.register_forward_hook(divide)
        model.head.register_forward_hook(lambda _module, _given, output: Gather.apply(output, rows))
