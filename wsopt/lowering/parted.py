"""Ways to give parts of one tile to several blocks: its sums split, or equal shares of the K-blocks of all tiles."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from wsopt.frontend.types import Contraction, Region
from wsopt.lowering.lower import grid_of
from wsopt.lowering.spread import mean_share
from wsopt.machine.types import Machine
from wsopt.program.changed import changed
from wsopt.program.combination import Combination, combination
from wsopt.program.types import Sharing, Structure
from wsopt.targets import LoopKind, Sums, target_of
from wsopt.tensors.views import FULL, Role

_SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Ways to split sums, beside that which gives every block one part where there are parts enough for one each."""
_FEW_WAVES, _LONG_LOOP, _PART_ITERATIONS, _SPLIT_GAINS = 2, 16, 2, 0.9
"""Sums are split where tiles are fewer than so many waves, and have so many iterations at least: a shorter loop takes
no longer than the trips of its parts. A part has so many iterations at least, and leaves the busiest block this share
at most of what fewer parts would.
"""
_ADDED_PARTS = 3
"""Parts whose sums L2 adds up, at least: of two it is always as fast to read both
(`docs/calibration/h200_atomic_sums.json`).
"""
_ROUNDED_BITS = 16
"""Bits of a result at least whose rounding hides in what order its sum was made."""
_SHARED_WAVES = 8
"""Shares are for tiles of fewer waves. Of more the last one leaves little idle, and where each block counts the
K-blocks of all tiles that takes longer.
"""


def with_parts(region: Region, s: Structure, machine: Machine) -> Iterator[Structure]:
    """The structure, and those of it in which several blocks have parts of its tiles."""
    yield s
    added = may_be_added(region, machine)
    for splits in split_counts(region, s, machine):
        yield changed(s, splits=splits)
        if added and splits >= _ADDED_PARTS:
            yield changed(s, splits=splits, atomics=True)
    if may_share(region, s, machine):
        yield changed(s, shares=True)


def split_counts(region: Region, s: Structure, machine: Machine) -> Iterator[int]:
    """Parts that the sums of a tile may be split into, each for a block of its own: numbers that leave the busiest
    block less of a tile than any smaller one, and each part a few K-blocks.
    """
    if not parts_come_together(region, s, machine):
        return
    tiles, places = grid_of(region, s).tiles, s.places(machine.sm_count)
    if tiles >= _FEW_WAVES * places:
        return
    iterations = -(-region.extent(Role.STREAM) // (s.depth * s.copies))
    least = _busiest_share(tiles, places, 1)
    most = iterations // _PART_ITERATIONS if iterations >= _LONG_LOOP else 1
    for splits in sorted(n for n in {*_SPLITS, places // tiles} if 1 < n <= most):
        share = _busiest_share(tiles, places, splits)
        if share <= _SPLIT_GAINS * least:
            least = share
            yield splits


def parts_come_together(region: Region, s: Structure, machine: Machine) -> bool:
    """Whether a tile's results can be made of what several blocks leave of their parts.

    emitter.v1: by persistent blocks, without rows that are reduced beside products. Where values are computed, sums
    are in registers, what rescales those of one part rescales those of all, and epilogues read no full tiles.
    """
    in_registers = target_of(machine).sums is Sums.REGISTERS
    if not s.persistent or region.beside or (region.chained and not in_registers):
        return False
    apart = s.sharing is Sharing.PING_PONG or region.full_sources
    return not region.chained or not (apart or _together(region) is None)


def may_be_added(region: Region, machine: Machine) -> bool:
    """Whether L2 may add up the partial sums of a tile's parts, in the order in which they come.

    Not where the graph is deterministic, nor where results are truths or numbers of 8 bits, some of which the order
    would move by a whole step. Where values are computed, a part's sums are rescaled before they are added;
    and atomics two neighbours wide add what threads have in registers as products leave it there.
    """
    coarse = any(output.view.dtype.bits < _ROUNDED_BITS for output in region.outputs)
    ordered = region.deterministic or region.chained or coarse
    return not ordered and target_of(machine).sums is Sums.REGISTERS


def may_share(region: Region, s: Structure, machine: Machine) -> bool:
    """Whether blocks may take equal shares of the K-blocks of all tiles: where these are few and the last wave leaves
    a tenth of the time to idle SMs, and where how long they are is known when the kernel runs alone.

    Not where the graph is deterministic: where a row's sums are cut, and so its bits, depends on how many tiles there
    are. emitter.v1: by cooperative consumers of blocks that have an SM each, in loops of kinds that a card has been
    seen to run.
    """
    kind = LoopKind.VALUES if region.body else LoopKind.PRODUCTS
    never = s.occupancy or s.sharing is Sharing.PING_PONG or kind not in target_of(machine).shared
    if region.deterministic or never or not parts_come_together(region, s, machine):
        return False
    iterations = -(-region.extent(Role.STREAM) // (s.depth * s.copies))
    tiles, sms = grid_of(region, s).tiles, machine.sm_count
    if iterations < _LONG_LOOP or tiles >= _SHARED_WAVES * sms:
        return False
    varied, few = mean_share(region) < 1, tiles < _FEW_WAVES * sms
    return varied or (few if region.chained else tiles / sms <= _SPLIT_GAINS * _busiest_share(tiles, sms, 1))


@functools.lru_cache(maxsize=16)
def _together(region: Region) -> Combination | None:
    """How the results of a loop's parts come together, where it computes values."""
    sums = {one.name: one.rescale for one in region.contractions if one.spans == FULL}
    return combination((item for item in region.body if not isinstance(item, Contraction)), sums)


def _busiest_share(tiles: int, places: int, splits: int) -> float:
    """Tiles' worth of iterations that the busiest of so many blocks takes, split so many ways."""
    return -(-tiles * splits // places) / splits
