"""What every architecture in models/ says of its models, and all that the rest of the project asks of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from contracts.cell import Layout


@runtime_checkable
class Model(Protocol):
    """One shape. `seq_length` and `vocab_size` count tokens.

    The fields of the class are the keys of an entry in config/models.yaml, beside `name`. Those that decide what is
    measured are in `shape()`; names and the source are not.
    """

    name: str
    seq_length: int
    vocab_size: int
    architecture: str  # the file in models/
    source: str  # where the shape was taken from
    shown_as: str  # what tables and figures call it, where that is not its name

    @property
    def num_parameters(self) -> int:
        """The exact count."""

    @property
    def layers_size(self) -> int:
        """How large its layers are together, in any unit: under weak_model scaling it grows with the GPUs."""

    def besides_layers(self) -> dict[str, Any]:
        """Return, by name, what weak_model scaling keeps: all that is not the number and width of the layers."""

    @property
    def tokens_per_sample(self) -> int:
        """Tokens that a sample of the batch trains on."""

    def shape(self) -> dict[str, Any]:
        """Return what is measured: everything but its names and where it was taken from."""

    def model_flops_per_step(self, global_batch_size: int) -> float | None:
        """Return the FLOPs of one step without recomputation; None where no formula of the architecture holds."""

    def recomputing_flops_per_step(self, global_batch_size: int) -> float | None:
        """Return the FLOPs of one step whose layers run forward a second time; None where no formula holds."""

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return every parameter's name and shape; their sizes sum to `num_parameters`."""

    def mistake(self) -> str:
        """Return what is wrong with the shape, in words; empty where nothing is."""

    def cut_mistake(self, layout: Layout) -> str:
        """Return why a layout cannot cut this model, in words; empty where it can."""
