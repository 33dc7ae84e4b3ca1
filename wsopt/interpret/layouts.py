"""Gluon's layouts as plain records: enough to compare them and to check the warps they are spread over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from wsopt.interpret.faults import InterpreterError


class Layout:
    """Base of all layouts."""

    @property
    def value(self) -> Layout:
        """The layout itself, as a constexpr would give it."""
        return self


class DistributedLayout(Layout):
    """Distribution of a register tensor's elements over warps."""


@dataclass(frozen=True)
class AutoLayout(DistributedLayout):
    """A layout that Triton infers."""


@dataclass(frozen=True)
class CoalescedLayout(DistributedLayout):
    """A layout that Triton chooses for global memory."""


@dataclass(frozen=True)
class BlockedLayout(DistributedLayout):
    """Rectangles of elements a thread."""

    size_per_thread: list[int]
    threads_per_warp: list[int]
    warps_per_cta: list[int]
    order: list[int]
    cga_layout: list[list[int]] = field(default_factory=list)

    def permuted(self, axes: Sequence[int]) -> BlockedLayout:
        """The layout of the same tensor with its dimensions reordered: the new one `i` is the old `axes[i]`."""
        own, lanes, warps = (
            [extents[axis] for axis in axes]
            for extents in (self.size_per_thread, self.threads_per_warp, self.warps_per_cta)
        )
        blocks = [[base[axis] for axis in axes] for base in self.cga_layout]
        return BlockedLayout(own, lanes, warps, [list(axes).index(axis) for axis in self.order], blocks)


@dataclass(frozen=True)
class SliceLayout(DistributedLayout):
    """The parent's layout with one dimension taken out."""

    dim: int
    parent: DistributedLayout


@dataclass(frozen=True)
class DistributedLinearLayout(DistributedLayout):
    """A layout given by its bases."""

    reg_bases: list[list[int]]
    lane_bases: list[list[int]]
    warp_bases: list[list[int]]
    block_bases: list[list[int]]
    shape: list[int]


@dataclass(frozen=True)
class DotOperandLayout(DistributedLayout):
    """A register operand of a tensor-core instruction."""

    operand_index: int
    parent: DistributedLayout
    k_width: int


@dataclass(frozen=True)
class NVMMADistributedLayout(DistributedLayout):
    """The accumulator of a tensor-core instruction."""

    version: list[int]
    warps_per_cta: list[int]
    instr_shape: list[int]
    cga_layout: list[list[int]] = field(default_factory=list)


class SharedLayout(Layout):
    """Layout of a shared-memory buffer."""


@dataclass(frozen=True)
class NVMMASharedLayout(SharedLayout):
    """The swizzled layout that TMA writes and wgmma reads."""

    swizzle_byte_width: int
    element_bitwidth: int
    rank: int = 2
    transposed: bool = False
    fp4_padded: bool = False
    cga_layout: list[list[int]] = field(default_factory=list)

    @staticmethod
    def get_default_for(block_shape: list[int], dtype: Any, **_: Any) -> NVMMASharedLayout:
        """Return the layout with the widest swizzle that the inner extent of a block allows."""
        inner = block_shape[-1] * dtype.itemsize
        swizzle = next((width for width in (128, 64, 32) if inner % width == 0), 0)
        return NVMMASharedLayout(swizzle, dtype.primitive_bitwidth, len(block_shape))


@dataclass(frozen=True)
class SwizzledSharedLayout(SharedLayout):
    """A swizzle given by its parameters."""

    vec: int
    per_phase: int
    max_phase: int
    order: list[int]
    cga_layout: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class MBarrierLayout(SharedLayout):
    """The layout of an mbarrier, or of those of a cluster's blocks."""

    cga_layout: list[list[int]] = field(default_factory=list)


def warps_of(layout: Any) -> int | None:
    """Return over how many warps a register layout is spread, or None where it does not say."""
    match layout:
        case SliceLayout(parent=parent) | DotOperandLayout(parent=parent):
            return warps_of(parent)
        case BlockedLayout() | NVMMADistributedLayout():
            return prod(layout.warps_per_cta)
        case _:
            return None


def check_warps(layout: Any, warps: int) -> None:
    """Refuse a register layout made for another number of warps than its partition has."""
    made_for = warps_of(layout)
    if made_for is not None and made_for != warps:
        raise InterpreterError(
            f"a layout made for {made_for} warps is used in a partition of {warps}: {layout}"
        )
