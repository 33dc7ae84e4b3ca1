"""The targets that there are: which implementations their products have, who issues them, and what they need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from wsopt.machine.load import require_target
from wsopt.machine.types import Machine


class Sums(StrEnum):
    """Memory in which products leave their sums, which also says who issues them.

    In registers a warpgroup issues its own products and waits for them. In tensor memory a warp issues the products
    of a block, barriers hear of their ends, and another partition's warpgroup reads the sums.
    """

    REGISTERS = "registers"
    TENSOR_MEMORY = "tensor memory"


class Operands(StrEnum):
    """Memory through which a product takes an operand that the loop computes.

    In registers a warpgroup feeds its own products. In tensor memory an operand has columns of its own, or those of
    the scores that it was computed from.
    """

    REGISTERS = "registers"
    COLUMNS = "columns"
    SCORES = "scores"


class LoopKind(StrEnum):
    """Kind of streamed loop: products alone, computed values between products, or rows without products."""

    PRODUCTS = "products"
    VALUES = "computed values"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Target:
    """An architecture that kernels are written for. Capacities and times are the machine's own.

    `consumer_rows` are the rows of one consumer's sums, `consumers` how many a block may have, `warpgroups` the
    warpgroups of one; `transforms` how many warpgroups may compute operands for consumers; `operands` how products of
    a loop that computes values between them take these, and `corrections` how many warpgroups may rescale its sums
    for the consumers; `sum_sets` how many sets of sums a block may keep, so that one is read under the products of
    the next. With `swaps` operands change sides,
    with `single` a block may have one tile, with `ping_pong` consumers may work in ping-pong, with `tails` a product
    may end early in its K-block. Two blocks may share products from the release `paired_since` of Triton on, None
    for never. `loops` are the kinds of loops that it has; `promotes` is whether partial sums are
    added up, `sums_f8_in_f32` whether the tensor core's own sums of f8 products are as long as f32's, `reduces`
    whether rows of operands or of outputs are reduced beside products. `exp2_eighths` are the shares of exp2, in
    eighths and ascending from none, that a loop of computed values may take by a polynomial on the FMA pipe. In loops
    of the `shared` kinds, which a card has been seen to run so, blocks may take equal shares of K-blocks. A kernel
    imports `names` from Gluon's `module`, `product_names` if it has products, and `column_names` if a tile in tensor
    memory lies in another's columns.
    `validated`: whether predictions of its kernels were held against measurements.
    """

    architecture: str
    title: str
    sums: Sums
    consumer_rows: tuple[int, ...]
    consumers: tuple[int, ...]
    warpgroups: tuple[int, ...]
    transforms: tuple[int, ...]
    operands: tuple[Operands, ...]
    corrections: tuple[int, ...]
    sum_sets: tuple[int, ...]
    swaps: bool
    single: bool
    ping_pong: bool
    tails: bool
    promotes: bool
    paired_since: tuple[int, int] | None
    sums_f8_in_f32: bool
    reduces: bool
    exp2_eighths: tuple[int, ...]
    shared: frozenset[LoopKind]
    loops: frozenset[LoopKind]
    module: str
    names: tuple[str, ...]
    product_names: tuple[str, ...]
    column_names: tuple[str, ...]
    validated: bool

    def __post_init__(self) -> None:
        """A set of sums in registers is the consumer's own."""
        assert self.sums is Sums.TENSOR_MEMORY or self.sum_sets == (1,)
        assert LoopKind.PRODUCTS in self.loops
        assert self.exp2_eighths[0] == 0

    def imports(self, *, products: bool, shared_columns: bool = False) -> list[str]:
        """Names that a kernel imports from the module, in the kernel's order."""
        found = self.names + self.product_names * products + self.column_names * shared_columns
        return sorted(found, key=lambda name: (name.islower(), name))


HOPPER = Target(
    architecture="sm_90",
    title="Hopper",
    sums=Sums.REGISTERS,
    consumer_rows=(64, 128),
    consumers=(1, 2, 3),
    warpgroups=(1, 2),
    transforms=(1,),
    operands=(Operands.REGISTERS,),
    corrections=(0,),
    sum_sets=(1,),
    swaps=True,
    single=True,
    ping_pong=True,
    tails=True,
    promotes=True,
    paired_since=None,
    sums_f8_in_f32=False,
    reduces=True,
    exp2_eighths=(0,),
    shared=frozenset({LoopKind.PRODUCTS, LoopKind.VALUES}),
    loops=frozenset(LoopKind),
    module="hopper",
    names=("fence_async_shared", "mbarrier", "tma"),
    product_names=("warpgroup_mma", "warpgroup_mma_wait"),
    column_names=(),
    validated=True,
)

BLACKWELL = Target(
    architecture="sm_100",
    title="Blackwell",
    sums=Sums.TENSOR_MEMORY,
    consumer_rows=(128,),
    consumers=(1, 2),
    warpgroups=(1,),
    transforms=(),
    operands=(Operands.SCORES, Operands.COLUMNS),
    corrections=(0, 1),
    sum_sets=(1, 2),
    swaps=True,
    single=True,
    ping_pong=False,
    tails=True,
    promotes=False,
    paired_since=(3, 8),
    # 25 bits of a significand, where Hopper keeps 13: measured on a B200 for tcgen05.mma.kind::f8f6f4 by users of
    # DeepGEMM (its issue 176, 2025-08); see also the models of Khattak and Mikaitis, arXiv:2512.07004.
    sums_f8_in_f32=True,
    reduces=True,
    exp2_eighths=(0, 1, 2, 3, 4),
    shared=frozenset(),
    loops=frozenset(LoopKind),
    module="blackwell",
    names=("fence_async_shared", "mbarrier", "tma"),
    product_names=("TensorMemoryLayout", "allocate_tensor_memory", "tcgen05_commit", "tcgen05_mma"),
    column_names=("tensor_memory_descriptor",),
    validated=False,
)
"""A warp of its own issues its products. None of its kernels was measured.

emitter.v1: a consumer is one warpgroup, also where values are computed between products.
"""

BLACKWELL_ULTRA = replace(BLACKWELL, architecture="sm_103", title="Blackwell Ultra")
"""It differs from Blackwell in rates alone, which are its cards' own. Triton 3.6 cannot disassemble its code."""

TARGETS = {target.architecture: target for target in (HOPPER, BLACKWELL, BLACKWELL_ULTRA)}


def target_of(machine: Machine) -> Target:
    """The record of what kernels for this card are written for; LoweringError, with the reason, if there is none."""
    return TARGETS[require_target(machine)]
