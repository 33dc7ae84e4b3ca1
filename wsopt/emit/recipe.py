"""The recipe of a kernel's launch as frozen data: checks, tensor maps, scalars, the order of tiles, workspaces.

A recipe says in expressions of the tensors' extents, strides and addresses what every launcher does in statements.
It is made from a kernel's plan (`recipe_of.py`); from it are written the launcher of `kernel.py` (`launcher.py`) and
what `wsopt export` gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from wsopt.emit.integers import Expression, Integer, Relation
from wsopt.graph.types import DType
from wsopt.tensors.views import Packing

Message: TypeAlias = tuple[str | Integer | tuple[Integer, ...], ...]
"""A sentence: text, numbers that are known at run time, and lists of them."""

ALIGNMENT = 16
"""Bytes that addresses and strides of a tensor map are multiples of (CUDA driver API, cuTensorMapEncodeTiled)."""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of a launch, and the sentence for one that does not hold."""

    left: Integer
    relation: Relation
    right: Integer
    message: Message


def aligned(tensor: str) -> Check:
    """The tensor starts where a tensor map, or code compiled for aligned addresses, needs it to."""
    message = (f"tensor {tensor} has to start at a multiple of {ALIGNMENT} bytes",)
    return Check(Expression("address", (tensor,)), "multiple_of", ALIGNMENT, message)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of the graph: what it has to be, and for an output its extents as expressions of the inputs', and
    whether it is `zeroed` before the kernel writes to it.
    """

    name: str
    dtype: DType
    rank: int
    shape: tuple[Integer, ...] = ()
    zeroed: bool = False


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map (TMA descriptor): dimensions outermost first, strides in elements, the last one 1.

    `block` is the tile of one copy in the kernel's text, `box` what one instruction moves: a copy of a larger tile
    is several. `layout` names the constant of the kernel's text for its layout in shared memory; its `swizzle` is in
    bytes, 0 for none. Element strides are 1, nothing is interleaved, L2 fetches lines of 128 bytes, and elements
    outside the tensor are zeros. With `words` the tensor's bytes are copied as words of 16 bits, and all is in words.
    """

    argument: str
    tensor: str
    dtype: DType
    extents: tuple[Integer, ...]
    strides: tuple[Integer, ...]
    block: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    layout: str
    words: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.block)


@dataclass(frozen=True, slots=True)
class PointerArgument:
    """The address of a tensor's first element."""

    argument: str
    tensor: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """An i32."""

    argument: str
    value: Integer


@dataclass(frozen=True, slots=True)
class DealtOrder:
    """The address of a table in device memory that says which tiles each persistent block takes: i32, `blocks` + 1
    places, then `tiles` numbers.

    A block's tiles stand in the table from its own place up to that of the next block. A tile of rows has
    `end` - `begin` K-blocks, at least none: expressions of `row`, its first row, `last_row`, its last, and the
    extent of the streamed axis. With `longest_last` tile numbers count rows from the last tile. Tiles are dealt out
    in the order of their numbers, those of the last waves (`program/tile_order.py`) by descending K-blocks, each to
    the block that is the first to be done: a tile takes its K-blocks and one more.
    """

    argument: str
    tile_rows: int
    begin: Integer
    end: Integer
    longest_last: bool


@dataclass(frozen=True, slots=True)
class Workspace:
    """The address of device memory that the launches of a kernel on one stream share: so many `elements`.

    If it is `zeroed` it holds zeros before the first launch, and every launch leaves them there. Launches that may
    run at the same time have workspaces of their own.
    """

    argument: str
    dtype: DType
    elements: Integer
    zeroed: bool


Argument: TypeAlias = TensorMap | PointerArgument | ScalarArgument | DealtOrder | Workspace


@dataclass(frozen=True, slots=True)
class Packed:
    """A constant that is laid out anew before its first launch: what is said of it holds for what it is then."""

    tensor: str
    dtype: DType
    packing: Packing


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that a launch needs and the compiled kernel does not say.

    In this order: tensors have their types and ranks, `tensor_checks` hold, `names` are given (each an expression of
    those before it, of tensors, and of `processors`, the device's number of multiprocessors), `checks` hold.
    Of `packed` tensors all of it is said as they are then.
    `arguments` are the kernel's, in order. The `grid` is blocks along x, and along y and z where it has these: an
    axis for each of the tiles' axes, or x alone, as many as the name `blocks` says; where `persistent`, no more than
    `processors`.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    tensor_checks: tuple[Check, ...]
    names: tuple[tuple[str, Integer], ...]
    checks: tuple[Check, ...]
    arguments: tuple[Argument, ...]
    persistent: bool
    grid: tuple[Integer, ...]
    packed: tuple[Packed, ...] = ()

    @property
    def compiled_checks(self) -> tuple[Check, ...]:
        """The checks of tensors for a kernel that is compiled before its tensors are known.

        What it reads and writes by address, it takes to be as aligned as what TMA moves.
        """
        pointers = (one.tensor for one in self.arguments if isinstance(one, PointerArgument))
        return tuple(dict.fromkeys((*self.tensor_checks, *map(aligned, pointers))))

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """The tensor maps, in the order of the kernel's arguments."""
        return tuple(one for one in self.arguments if isinstance(one, TensorMap))

    @property
    def order(self) -> DealtOrder | None:
        """The order of tiles, of a kernel that is given one."""
        return next((one for one in self.arguments if isinstance(one, DealtOrder)), None)

    @property
    def workspaces(self) -> tuple[Workspace, ...]:
        """The memory that launches share, of a kernel whose sums are split."""
        return tuple(one for one in self.arguments if isinstance(one, Workspace))

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)
