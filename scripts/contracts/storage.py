"""What an adaptor says of where its framework keeps a model's state, for the estimate of a cell's memory.

An adaptor may give, as a fourth name beside those of `contracts.adaptor`, `stored_state(cell: Cell) -> StateStorage`:
a pure function, called while planning. One that gives none is taken to be the default below. What follows from it is in
`planning.memory_estimate`.
"""

from __future__ import annotations

from dataclasses import dataclass

from contracts.cell import Cell


@dataclass(frozen=True)
class StateStorage:
    """What one GPU holds, in bytes per parameter, and by what it computes with it.

    Pipeline ranks cut the model by layers, tensor ranks cut the weights of its products, embedding and head;
    `..._shards` counts the data ranks that share what is left among them. The default is that of
    `frameworks.torch.torch_model`: autocast over float32 weights, their gradients, AdamW's two moments, no shards.

    parameter_bytes, gradient_bytes, optimizer_bytes: kept from one micro-batch to the next, on the GPU. Float32 masters
        of half-precision weights belong to the optimizer.
    step_bytes: there during the optimizer's step only (float32 copies of gradients), sharded as its state is.
    layer_bytes, ends_bytes: where parameters are shards, what is whole while it is used, per parameter of one layer and
        of embedding and head: gathered parameters, those fetched ahead, gradients on their way to the shards.
    matrix_bytes: where nothing is gathered by layers, the same for the largest weight matrix: its gradient before it is
        added up. None: 6 under autocast (half, then float32), else that of the number format.
    buffers_gib: the framework's own buffers.
    only_products_are_cut: embeddings, norms and biases are whole on every rank, whatever the tensor ranks and shards.
    logits_are_cut: tensor ranks hold their part of the vocabulary's logits.
    autocast: in half precision, weights and residual stream are float32 and products cast what they take. If not, all
        is in the half type.
    saves_uncast_inputs: a product under autocast saves its input as it came, and no cast copy of its weight.
    attention_score_bytes: kept per attention score; 0 with kernels that never hold the scores.
    selective: what "selective" checkpointing recomputes: all but matrix products and attention ("other operators",
        frameworks/torch/decoder.py), or the attention alone ("attention", arXiv:2205.05198).
    sequence_parallel: what tensor ranks would hold in common is split along the sequence.
    schedule: in which order stages work: "1f1b" or "gpipe". virtual_stages: chunks of layers of one pipeline rank.
    buffer_per_micro_batch: as in torch.distributed.pipelining. A stage has a buffer of its own for every micro-batch of
        a step that it receives activations or gradients of, for as long as it lives, and not only for those in flight;
        it keeps what it puts out, logits too, until the backward pass, and a gradient that it sends until the next.
    """

    parameter_bytes: float = 4.0
    gradient_bytes: float = 4.0
    optimizer_bytes: float = 8.0
    step_bytes: float = 0.0
    parameter_shards: int = 1
    gradient_shards: int = 1
    optimizer_shards: int = 1
    layer_bytes: float = 0.0
    ends_bytes: float = 0.0
    matrix_bytes: float | None = None
    buffers_gib: float = 0.0
    only_products_are_cut: bool = False
    logits_are_cut: bool = True
    autocast: bool = True
    saves_uncast_inputs: bool = False
    attention_score_bytes: float = 0.0
    selective: str = "other operators"
    sequence_parallel: bool = False
    schedule: str = "1f1b"
    virtual_stages: int = 1
    buffer_per_micro_batch: bool = False


def ddp_gradient_bytes(cell: Cell) -> float:
    """Of float32 gradients under DistributedDataParallel: a view into its buckets, but where they are added up over
    micro-batches first each is a tensor of its own beside its bucket.
    """
    return 8.0 if cell.num_micro_batches > 1 else 4.0
