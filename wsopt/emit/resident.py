"""Start and end of blocks that have one tile each: the kernel before is waited for, and the next one is let in.

Blocks that go through many parts of a row are few, and leave room on SMs. If the next kernel's blocks are let into
that room early, they lie unevenly on the SMs: a cross-entropy of 512 rows over 151,936 columns took 98 us so where it
takes 75 (`docs/calibration/h200_parts_by_threads.json`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wsopt.emit.addresses import ByAddress
from wsopt.emit.plan import KernelPlan
from wsopt.program.row_layout import ACCESS_BITS
from wsopt.tensors.views import Output, Role, Source

_BEGUN = "Blocks of the next kernel may begin where an SM has room; their `gdc_wait` ends with this kernel."
_ENDED = "Blocks of the next kernel may begin: earlier, those SMs that have room would have more of them than others."
_LET_BEGIN = "gdc_launch_dependents()"
_TOLD = (
    "Rows are multiples of {} elements apart, which the compiler is told: a thread moves 16 bytes at a time."
)


def begin(plan: KernelPlan) -> list[str]:
    """The lines before a block's tile."""
    if not plan.s.resident:
        return list(_strides(plan)) if plan.loops_over_tiles else []
    lets_begin = [] if plan.program.long_rows else [f"# {_BEGUN}", _LET_BEGIN]
    return ["gdc_wait()", *lets_begin, *_strides(plan)]


def end(plan: KernelPlan) -> list[str]:
    """The lines behind a block's tile."""
    return [f"# {_ENDED}", _LET_BEGIN] if plan.s.resident and plan.program.long_rows else []


def told_vectors(plan: KernelPlan) -> list[ByAddress[Source]]:
    """The vectors along columns, one a batch element, of which a launch checks that each begins at a multiple of 16
    bytes, as the compiler is told in kernels of rows: else threads load them element by element.
    """
    if not plan.loops_over_tiles:
        return []
    own = (one for one in plan.vectors.values() if not one.of.is_tile and one.strides)
    return [one for one in own if Role.COLUMN in one.of.spans and one.of.view.is_aligned]


def told_outputs(plan: KernelPlan) -> list[ByAddress[Output]]:
    """The outputs of tiles that threads store, of which the compiler is told in the same way."""
    if not plan.loops_over_tiles:
        return []
    return [one for one in plan.outputs_by_address if one.of.has_columns and one.of.view.is_aligned]


def _strides(plan: KernelPlan) -> Iterator[str]:
    """Lines that tell the compiler of what numbers strides are multiples, as a launch has checked."""
    tiles: list[ByAddress[Source] | ByAddress[Output]] = [
        one for one in plan.vectors.values() if one.of.is_tile
    ]
    tiles += told_vectors(plan)
    tiles += told_outputs(plan)
    for bits, names in _known(one for one in tiles if one.of.view.is_aligned):
        whole = ACCESS_BITS // bits
        yield f"# {_TOLD.format(whole)}"
        yield from (f"{name} = {name} // {whole} * {whole}" for name in names)


def _known(tiles: Iterable[ByAddress[Source] | ByAddress[Output]]) -> Iterator[tuple[int, list[str]]]:
    """The arguments that are strides of tensors that threads move 16 bytes at a time, by their elements' bits: not
    those of columns, which lie apart where they are every other element of a row.
    """
    found: dict[int, dict[str, None]] = {}
    for one in tiles:
        names = (name for role, name in one.strides if role is not Role.COLUMN)
        found.setdefault(one.of.view.dtype.bits, {}).update(dict.fromkeys(names))
    yield from ((bits, [*names]) for bits, names in sorted(found.items()) if names)
