"""Sentences on what becomes of the parts of a tile that several blocks have."""

from __future__ import annotations

from collections.abc import Iterator

from wsopt.perf.splits import SplitCost, split_cost
from wsopt.program.facts import Shares
from wsopt.schedule.verified import VerifiedSchedule


def split_sums(verified: VerifiedSchedule) -> Iterator[str]:
    """A sentence on what becomes of the parts of a tile whose sums are split."""
    p, s = verified.program, verified.program.structure
    if p.shares is not None:
        yield from _shares(p.shares, split_cost(p, verified.machine), values=p.work is not None)
    if s.splits > 1:
        cost, values = split_cost(p, verified.machine), p.work is not None
        axis, left, does = (
            ("streamed", "its sums and maxima", "rescales and adds up")
            if values
            else ("contracted", "its sums", "adds up")
        )
        yield (
            f"{s.splits} blocks share a tile, each with a part of the {axis} axis: each stores {left} "
            f"({cost.part:,} cycles), and the one that comes last {does} all {s.splits} in order "
            f"({cost.all:,} cycles) and has the epilogue."
        )


def _shares(shares: Shares, cost: SplitCost, *, values: bool) -> Iterator[str]:
    """A sentence on what becomes of the parts of a tile where blocks take equal shares of the K-blocks."""
    if values:
        yield (
            "Each block takes an equal share of the K-blocks of all tiles, wherever tiles begin and end: of the "
            "first tile and the last one it may have a part, which it stores with its sums and maxima "
            f"({cost.part:,} cycles). At the end of its share it tells of both, and whose part of a tile comes last "
            f"rescales and adds up all in order ({cost.all:,} cycles) and has the epilogue."
        )
        return
    behind = "After the tiles that all blocks have one each of, each" if shares.cut < 1 else "Each"
    yield (
        f"{behind} block takes an equal share of the K-blocks that are left, wherever tiles begin and end: of a part "
        f"of a tile it stores the sums ({cost.part:,} cycles), and whose part comes last adds up all in order, "
        f"{shares.most} at most ({cost.all:,} cycles), and has the epilogue."
    )
