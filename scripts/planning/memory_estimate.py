"""How much memory a cell needs of each GPU, estimated before anything starts. Pure functions; nothing is measured.

In the formulas, as in arXiv:2205.05198 (Korthikanti et al. 2022): a attention heads, b sequences of a micro-batch, h
hidden size, L layers, p pipeline stages, s sequence length, t tensor ranks, V vocabulary. Besides: m micro-batches of a
step, v chunks of layers of a pipeline rank, e bytes of a number in the products (2 in half precision, 4 in fp32), r
bytes of one in the residual stream (4 in fp32 and under autocast, else e).

Parameters, gradients, optimizer state: the parameters of the fullest stage times the bytes that the framework keeps of
each (`contracts.storage`). L/p layers of 12 h^2/t + 13 h; the first stage has the embeddings too (V h/t + s h), the
last one norm and head (2 h + V h/t).

Activations: what forward passes keep for backward passes.
- Of a layer and micro-batch, s b h times
    none       2 r + 2 e + 12 e/t, and a s/(h t) times the bytes of an attention score where a framework keeps scores.
               At e = r = 2 it is equation 2 there, 10 + 24/t + 5 a s/(h t), without dropout's masks, which no cell has.
               On every tensor rank: the inputs of two norms (2 r), of the QKV and of the first feed-forward product
               (2 e). Divided by t: Q, K, V (3 e) and the inputs of attention's last product (e), of GELU (4 e) and of
               the second feed-forward product (4 e). Autocast casts for Q, K and V each: 2 e more.
    selective  where attention is recomputed, the same without the scores (section 5 there). Where all but products and
               attention is (frameworks/torch/decoder.py), what those put out and the layer's input: r + 2 e + 8 e/t,
               and 2 e more if t > 1, since the results of two all-reduces are kept too. Recomputing a layer stops
               before its last product, whose result, e, therefore stays until the layer's backward pass is over.
    full       r: the layer's input (2 s b h in section 5 there).
  Sequence parallelism divides by t what is on every tensor rank (section 4.2 there).
- Autocast without checkpointing: the half-precision copies of the layers' weights, e a number, of every micro-batch.
- Micro-batches in flight on the first and on the last stage: min(p, m) and 1 under 1F1B; at most m, p + (p - 1)/v and
  p - (p - 1)/v under the interleaved schedule (section 4.2 there); m and m under GPipe. With p > 1 each of them keeps
  what its stage sends or receives besides: r s b h.
- Where a stage has a receive buffer of its own for each micro-batch of a step (`buffer_per_micro_batch`), not for those
  in flight: m r s b h for the activations that it receives, which all stages but the first do, and as much for the
  gradients, which all but the last do. A stage in the middle receives both, so with three stages or more the second is
  looked at too. A layer's input that lies in such a buffer is not counted a second time. m b is the share of a data
  rank, so a smaller or larger micro-batch changes nothing here. Such a stage also keeps the last gradient that it sent,
  r s b h, and the last stage its logits until their backward pass, e s b V/t.
- GPipe's last stage: of all micro-batches but one, what the working set has of norm, head and loss.

Working set: what comes on top for a moment. Of these moments, the one that needs most:
- the end of the forward pass: norm's and head's inputs, (r + e) s b h, the logits, e s b V/t, and autocast's copies of
  the head and, with checkpointing, of all the stage's weights; under autocast also what the norm puts out, r s b h,
  until it is cast;
- the loss: the same inputs and copy of the head, and 12 s b V/t: log-softmax and two gradients, in float32;
- the backward pass of the head (with the logits' gradient) or of the embedding: the gradients of its input, e s b h,
  and of its weight before it is added up;
- the backward pass of a layer: what is recomputed of it, gradients on their way, (r + 4 e/t) s b h, the gradient of its
  largest weight before it is added up, 4 h^2/t numbers, and with checkpointing autocast's copies of its weights;
- the optimizer's step, when there are no activations: what it needs for itself.
Where parameters are sharded, whole layers for the time of their use take the place of single gradients.

Against one process of plain torch the sum of both misses nothing but what it leaves out, 1 % and less: statistics of
norms and of attention's softmax, and autocast's copies of biases. A CPU's kernels for bf16 add blocks of what they
multiply (tests/unit/test_memory_estimate.py counts these terms and measures the rest on the CPU). Where a step is one
micro-batch it is too much, for gradients are then made as activations go. What else a GPU's memory is needed for is in
RESERVE_GIB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from contracts.storage import StateStorage
from models.gpt import Gpt, layers_of_stages
from settings.hardware import device_table
from settings.systems import System
from workloads.training.training_cell import TrainingCell

GIB = 2.0**30
# What else takes a GPU's memory: of 16 GiB by name a driver shows 15.8; a CUDA context with its kernels is 0.3 to 0.6,
# NCCL's buffers are 0.1 to 0.4, and some hundred MiB lie in pieces that are too small for anything.
RESERVE_GIB = 1.5
DEFAULT_STORAGE = StateStorage()
HALF_BYTES, SINGLE_BYTES = 2, 4


@dataclass(frozen=True)
class MemoryEstimate:
    """GiB on the fullest GPU of a cell."""

    parameters_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    working_gib: float

    @property
    def total_gib(self) -> float:
        state_gib = self.parameters_gib + self.gradients_gib + self.optimizer_gib
        return state_gib + self.activations_gib + self.working_gib

    def fits(self, memory_gib: float) -> bool:
        """Whether a GPU with so much memory is predicted to hold it, with RESERVE_GIB left for everything else."""
        return self.total_gib + RESERVE_GIB <= memory_gib

    def words(self, holder: str = "GPU") -> str:
        """For people, the parts in brackets; small models in MiB. holder: what has this memory to itself."""
        unit, size, digits = ("GiB", 1, 1) if self.total_gib >= 1 else ("MiB", 1024, 0)
        total, parameters, gradients, optimizer, activations, working = (
            f"{gib * size:.{digits}f}"
            for gib in (
                self.total_gib,
                self.parameters_gib,
                self.gradients_gib,
                self.optimizer_gib,
                self.activations_gib,
                self.working_gib,
            )
        )
        return (
            f"about {total} {unit} a {holder} (parameters {parameters}, gradients {gradients}, optimizer {optimizer}, "
            f"activations {activations}, working set {working})"
        )


def estimate_memory(cell: TrainingCell, storage: StateStorage = DEFAULT_STORAGE) -> MemoryEstimate | None:
    """Return the estimate for the fullest GPU of a cell; None where the model is no GPT."""
    if not isinstance(cell.model, Gpt):
        return None
    return max(stage_estimates(cell, storage).values(), key=lambda estimate: estimate.total_gib)


def stage_estimates(cell: TrainingCell, storage: StateStorage = DEFAULT_STORAGE) -> dict[int, MemoryEstimate]:
    """Return an estimate for every stage of a GPT's pipeline that can be the fullest, by the stage's index.

    The first has the embeddings and most micro-batches in flight, the last has the head and the loss. One in between
    can have more than both only where it has buffers for all that it receives, or more layers.
    """
    stages = cell.layout.pipeline_parallel
    layers = layers_of_stages(cell.model, cell.layout)
    first, last = micro_batches_in_flight(storage, stages, cell.num_micro_batches)
    if stages == 1:
        return {0: _stage_estimate(cell, storage, layers[0], first, is_first=True, is_last=True)}
    estimates = {
        0: _stage_estimate(cell, storage, layers[0], first, is_first=True, is_last=False),
        stages - 1: _stage_estimate(cell, storage, layers[-1], last, is_first=False, is_last=True),
    }
    if stages > 2 and (storage.buffer_per_micro_batch or cell.layout.stage_layers):
        assert storage.virtual_stages == 1, "no framework here has both"
        # Of those with the most layers, the first has most in flight.
        index = max(range(1, stages - 1), key=lambda stage: (layers[stage], -stage))
        inner = first if storage.schedule == "gpipe" else min(stages - index, cell.num_micro_batches)
        estimates[index] = _stage_estimate(cell, storage, layers[index], inner, is_first=False, is_last=False)
    return estimates


def estimate_for(adaptor: ModuleType, cell: TrainingCell) -> MemoryEstimate | None:
    """With the storage that the adaptor declares, where it does (see `contracts.storage`)."""
    stored_state = getattr(adaptor, "stored_state", None)
    return estimate_memory(cell, DEFAULT_STORAGE if stored_state is None else stored_state(cell))


def gpu_memory_gib(system: System, hardware: Mapping[str, Any]) -> float | None:
    """What a training process may use: the system's limit, else all of its device's; None where neither is known."""
    if system.memory_limit_gib is not None or not system.device.is_accelerator or not system.devices:
        return system.memory_limit_gib
    key = device_table(hardware).get(system.devices[0])
    return hardware[key].get("memory_gib") if key is not None else None


def micro_batches_in_flight(storage: StateStorage, stages: int, micro_batches: int) -> tuple[float, float]:
    """On the first and on the last stage; one that went through a part of the stage's chunks counts as that part."""
    if storage.schedule == "gpipe":
        return micro_batches, micro_batches
    chunks = storage.virtual_stages
    part = (stages - 1) / chunks
    first, last = (stages + part, stages - part) if chunks > 1 else (stages, 1)
    return min(first, micro_batches), min(last, micro_batches)


@dataclass(frozen=True)
class _Parameters:
    """How many one tensor rank of a stage has, by what is done with them."""

    layers: int
    layer_products: float
    head: float
    embedding: float
    other: float

    @property
    def products(self) -> float:
        return self.layers * self.layer_products + self.head

    def stored(self, storage: StateStorage, shards: int) -> float:
        if storage.only_products_are_cut:
            return self.products / shards + self.embedding + self.other
        return (self.products + self.embedding + self.other) / shards


@dataclass(frozen=True)
class _Formats:
    """Bytes of a number: in products, in the residual stream, of a copy by autocast, of a weight's gradient as a
    product leaves it, and the most of it until it is added up."""

    product: int
    residual: int
    copy: int
    gradient: int
    matrix: float


def _stage_estimate(
    cell: TrainingCell, storage: StateStorage, layers: int, in_flight: float, *, is_first: bool, is_last: bool
) -> MemoryEstimate:
    parameters = _parameters(cell, storage, layers, is_first, is_last)
    formats = _formats(cell, storage)
    e, r = formats.product, formats.residual
    h, tensor = cell.model.hidden_size, cell.layout.tensor_parallel
    tokens = cell.layout.micro_batch_size * cell.model.seq_length
    logits = tokens * cell.model.vocab_size / (tensor if storage.logits_are_cut else 1) if is_last else 0.0
    layer, layer_kept = _layer_activations(cell, storage, formats)
    recomputes = cell.activation_checkpointing != "none"

    # Behind the last stage's layers. Under GPipe all micro-batches but this one wait there for their backward pass.
    for_head = tokens * h * (r + e) if is_last else 0.0
    waiting = in_flight - 1 if is_last and storage.schedule == "gpipe" else 0
    kept = in_flight * parameters.layers * layer_kept
    kept += waiting * (for_head + logits * SINGLE_BYTES + parameters.head * formats.copy)
    buffers = sent = output = 0.0
    if cell.layout.pipeline_parallel > 1:
        transfer = tokens * h * r
        if storage.buffer_per_micro_batch:
            buffers = cell.num_micro_batches * transfer * ((not is_first) + (not is_last))
            # What a stage sends it keeps; what it received lies in a buffer, yet is counted as its first layer's input.
            kept += in_flight * transfer * ((not is_last) - (not is_first))
            kept += waiting * logits * e
            sent = 0.0 if is_first else transfer
            output = logits * e
        else:
            kept += in_flight * transfer
    if not recomputes:
        kept += in_flight * parameters.layers * parameters.layer_products * formats.copy

    copy = formats.copy if recomputes else 0
    embedding_gradient = min(formats.matrix, max(e, r))  # it comes in the weight's own type, never cast
    for_gradient = tokens * h * e if is_last else 0.0
    uncast = tokens * h * r if is_last and formats.copy else 0.0
    working = max(
        for_head
        + uncast
        + parameters.layers * parameters.layer_products * copy
        + parameters.head * formats.copy
        + logits * e,
        for_head + output + parameters.head * formats.copy + logits * 3 * SINGLE_BYTES,
        for_head + output + for_gradient + parameters.head * (formats.copy + formats.gradient) + logits * e,
        for_head + output + for_gradient + parameters.head * formats.matrix,
        parameters.embedding * embedding_gradient,
        (layer - layer_kept)
        + tokens * h * (r + 4 * e / tensor)
        + 4 * h * h / tensor * formats.matrix
        + parameters.layer_products * (copy + storage.layer_bytes),
        parameters.stored(storage, storage.optimizer_shards) * storage.step_bytes - kept,
    )
    working += (parameters.embedding + parameters.head) * storage.ends_bytes + sent
    return MemoryEstimate(
        parameters_gib=parameters.stored(storage, storage.parameter_shards) * storage.parameter_bytes / GIB,
        gradients_gib=parameters.stored(storage, storage.gradient_shards) * storage.gradient_bytes / GIB,
        optimizer_gib=parameters.stored(storage, storage.optimizer_shards) * storage.optimizer_bytes / GIB,
        activations_gib=(kept + buffers) / GIB,
        working_gib=working / GIB + storage.buffers_gib,
    )


def _parameters(cell: TrainingCell, storage: StateStorage, layers: int, is_first: bool, is_last: bool) -> _Parameters:
    model, layout = cell.model, cell.layout
    h, tensor = model.hidden_size, layout.tensor_parallel
    table = model.vocab_size * h
    # Tied, embedding and head of one stage are one matrix, and those of two stages are two copies.
    has_embedding = is_first and not (is_last and model.tie_embeddings)
    return _Parameters(
        layers=layers,
        layer_products=12 * h * h / tensor,
        head=table / tensor if is_last else 0.0,
        embedding=table / (1 if storage.only_products_are_cut else tensor) if has_embedding else 0.0,
        other=layers * 13 * h + is_first * model.seq_length * h + is_last * 2 * h,
    )


def _formats(cell: TrainingCell, storage: StateStorage) -> _Formats:
    e = SINGLE_BYTES if cell.precision == "fp32" else HALF_BYTES
    autocast = storage.autocast and e == HALF_BYTES
    matrix = storage.matrix_bytes
    if matrix is None:
        # Autocast: in half precision as the product leaves it, then cast to the weight's float32.
        matrix = e + SINGLE_BYTES if autocast else e
    return _Formats(
        product=e,
        residual=SINGLE_BYTES if autocast else e,
        copy=e if autocast and not storage.saves_uncast_inputs else 0,
        gradient=0 if storage.layer_bytes else e,
        matrix=0.0 if storage.layer_bytes else matrix,
    )


def _layer_activations(cell: TrainingCell, storage: StateStorage, formats: _Formats) -> tuple[float, float]:
    """Bytes of one layer and micro-batch: all that its backward pass needs, and what of it is kept until then."""
    model, tensor = cell.model, cell.layout.tensor_parallel
    e, r = formats.product, formats.residual
    cut = tensor if storage.sequence_parallel else 1
    units = cell.layout.micro_batch_size * model.seq_length * model.hidden_size
    scores = cell.layout.micro_batch_size * model.num_heads * model.seq_length**2 / tensor
    if e == r:
        without_scores = units * (4 * e / cut + 12 * e / tensor)
    elif storage.saves_uncast_inputs:
        # What leaves a product is float32 once its bias is added, so GELU and the product behind it take that.
        without_scores = units * (4 * r / cut + (4 * e + 8 * r) / tensor)
    else:
        without_scores = units * ((2 * r + 4 * e) / cut + 12 * e / tensor)
    everything = without_scores + scores * storage.attention_score_bytes
    if cell.activation_checkpointing == "none":
        return everything, everything
    if cell.activation_checkpointing == "full":
        return everything, units * r / cut
    if storage.selective == "attention":
        return everything, without_scores
    reduced = 2 if tensor > 1 else 0
    return everything + units * e / cut, units * ((r + (2 + reduced) * e) / cut + 8 * e / tensor)
