"""Limits of the emitter by name: what it cannot write yet, each said to be `emitter.v1` where it is held to.

What each of them forbids, and why, is in its record (`limit_records.py`).
"""

from __future__ import annotations

from enum import StrEnum


class Limit(StrEnum):
    """A limit by the name that people read."""

    SLOTS_IN_ORDER = "slots filled in order"
    STAGES = "stages within a tile"
    TWO_ITERATIONS = "two iterations at once"
    ONE_PROGRAM = "one program for all consumers"
    ROWS_IN_A_PASS = "rows within a pass"
    SUMS_IN_A_PASS = "partial sums within a pass"
    VALUES_IN_A_PASS = "K-blocks in tensor memory within a pass"
    TRANSFORM_IN_A_PASS = "computed operands within a pass"
    BASE_REGISTERS = "base registers of a tensor instruction"
    MOST_SLOTS = "32 slots a ring"
    HELPERS = "four warps beside consumers"
    STORES_OF_PARTIALS = "no store warps where partial sums are added"
    STORES_OF_VALUES = "no store warps in loops that compute values"
    STORES_OF_SPLITS = "no helpers of epilogues where sums are split"
    SPLIT_SUMS = "sums split where parts come together by what loops carry"
    PAIRS = "pairs of blocks in persistent loops of products alone"
    STORES_OF_ROWS = "no store warps where rows stream"
    LOADERS = "two loading warps, a ring each"
    OWN_OPERATIONS = "consumers issue what is theirs"
    COOPERATIVE_VALUES = "no ping-pong in loops that compute values"
    ONE_TILE_A_BLOCK = "one tile a block where values go through tensor memory"
    OPERANDS_IN_SHARED = "computed operands through tensor memory alone"
    ONE_WARPGROUP = "one warpgroup for a tile of scores"
    EVERY_RESCALE = "sums rescaled for every K-block"
    STREAMED_TRANSFORM = "computed operands from streamed tensors alone"
    ROWS_OF_TILES = "rows in persistent cooperative blocks"
    ALL_PROMOTED = "all products promoted, or none"
    EQUAL_SUBTILES = "equal epilogue subtiles"
    ONE_FACTOR = "one factor a row for partial sums"
    SEGMENTS = "groups cut by offsets in persistent blocks"
    SCALED_TRANSFORM = "partial sums scaled where consumers compute operands"
    WHOLE_TRANSFORM = "one transform warpgroup for all operands, or one for each"


MOST_SLOTS = 32
"""emitter.v1: slots of a ring. Each has two barriers that a block sets up; small slots would have hundreds."""

Lifted = frozenset[Limit]
"""Limits that a model is solved without."""
