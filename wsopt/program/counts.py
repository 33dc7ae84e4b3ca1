"""Counts of operations, whatever the machine: bytes of copies, products, instructions by kind. `perf` prices them."""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.graph.types import DType
from wsopt.machine.cost import InstructionMix
from wsopt.program.ids import Unit


@dataclass(frozen=True, slots=True)
class Copy:
    """A box of `rows` of `row_bytes`, `pitch_bytes` apart in memory. Of whole rows only `from_memory` bytes are
    copied, from device memory, to as many SMs at once as there are `tiles`; 0 for copies from L2.
    """

    rows: int
    row_bytes: int
    pitch_bytes: int
    from_memory: int = 0
    tiles: int = 0


@dataclass(frozen=True, slots=True)
class Release:
    """A slot that is handed back. Where nothing else has a consumer's warps agree that it was read, they `meet`. By a
    commit the tensor core does it, when the products that read the slot have ended.
    """

    meets: bool
    by_commit: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """Tiles of so many `outputs`, `staged` bytes in buffers, of which `copied` go on to device memory; `tiles` as for
    copies.
    """

    outputs: int
    staged: int
    copied: int
    tiles: int


@dataclass(frozen=True, slots=True)
class Product:
    """A product of `rows` by `columns`, `deep` elements, of a consumer's `warps`, which takes its left operand from
    shared memory or from `registers`. In a loop of products alone `sharers` run at once; 0 where arithmetic waits.
    """

    rows: int
    columns: int
    deep: int
    dtype: DType
    warps: int
    sharers: int = 0
    registers: bool = False


@dataclass(frozen=True, slots=True)
class Promotion:
    """Partial sums that a consumer's `warps` add to their sums."""

    elements: int
    warps: int


@dataclass(frozen=True, slots=True)
class Rescale:
    """Sums that are multiplied by a factor of each row."""

    elements: int


@dataclass(frozen=True, slots=True)
class Read:
    """A tile of whole rows that comes into registers; `widened` elements of 16 bits become f32."""

    nbytes: int
    widened: int


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A maximum or a sum of each row, which `lanes` threads of a warp share, and `warps` warps. What stays `apart` in
    the threads is not exchanged.
    """

    kind: str
    lanes: int = 4
    warps: int = 1
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A run of instructions, whose only order is that of its reductions and of its longest chain.

    `mix` is of each of `elements`; the chain has `statements`, of them `special` functions. `waits` for tiles of a
    ring are told; `tiles` are the bits of those that are read as accumulators lie, `vectors` elements of 16 bits that
    threads load besides.
    """

    mix: InstructionMix
    elements: int
    statements: int
    special: int
    reductions: tuple[RowReduction, ...]
    waits: int = 0
    tiles: tuple[int, ...] = ()
    vectors: float = 0.0


@dataclass(frozen=True, slots=True)
class Beside:
    """Arithmetic on `rows` of a K-block, `nbytes` of shared memory, that the tensor core is reading too; its
    `statements` have the reductions in.
    """

    work: Arithmetic
    nbytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class Transform:
    """Arithmetic on a consumer's rows of a K-block by another role, which reads so many bytes of shared memory and
    leaves so many there for products.
    """

    work: Arithmetic
    read: int
    written: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of an operation: `issue` of its thread, `busy` of its `unit`, `latency` until its result is there, and
    those of further units; `instructions` of the tensor core, a warpgroup. Every count has its cost on a machine; an
    operation of an added kind may give it at once.
    """

    issue: int
    latency: int
    unit: Unit | None = None
    busy: int = 0
    pipes: tuple[tuple[Unit, int], ...] = ()
    instructions: int = 0


Counts = (
    Copy | Release | Store | Product | Promotion | Rescale | Read | Arithmetic | Beside | Transform | Cost
)
