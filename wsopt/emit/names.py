"""Identifiers of an emitted kernel: the graph's names where they are free, else with an underscore."""

from __future__ import annotations

import builtins
import keyword
import re
from dataclasses import dataclass, field

from wsopt.emit.called import CHOICES, ROUNDINGS
from wsopt.targets import TARGETS

_KERNEL_WORDS = frozenset(
    (
        *(
            "gl",
            "gluon",
            "mbarrier",
            "tl",
            "tma",
            "tma_load",
            "tma_store",
            "torch",
            "triton",
            "TensorDescriptor",
        ),
        *(
            *(name for target in TARGETS.values() for name in target.imports(products=True)),
            "gdc_launch_dependents",
            "gdc_wait",
            "globaltimer",
            "begin_late",
            "LATER_NS",
            "tanh_approx",
            "gelu_tail_by_ratio",
            "erf_by_ratio",
            "sin_approx",
            "cos_approx",
            "lane_sums",
            "by_lanes",
            "by_threads",
            "for_elements",
            "columns_from",
            "own_columns",
            *CHOICES,
            *ROUNDINGS,
            "tile_coordinates",
            "divide",
        ),
        *(
            "kernel",
            "consumer",
            "loader",
            "loader0",
            "loader1",
            "store_warp",
            "mma_warp",
            "transform",
            "sums_full",
            "sums_empty",
            "SUM_SETS",
            "staged",
            "freed",
            "STORES",
            "epilogue",
            "halves",
            "bind",
            "prepare",
            "run",
            "register",
            "Launcher",
            "Any",
            "out",
            "grid",
            "extents",
            *("ctypes", "functools", "heapq", "itertools", "threading"),
        ),
        *(
            "k_block_range",
            "places",
            "begin",
            "end",
            "whole_begin",
            "whole_end",
            "last",
            "group",
            "groups",
            "head",
            "heads",
        ),
        *("tile_begin", "tile_end", "origin", "first", "last_row", "height", "k_block", "order", "place"),
        *(
            "inner_extent",
            "stationary_full",
            "stationary_empty",
            "LEAST",
            "STATIONARY_BYTES",
            "STATIONARY_SETS",
        ),
        *(
            "tile",
            "tiles",
            "slot",
            "slot_before",
            "slot_after",
            "phase",
            "phase_before",
            "phase_after",
            "next_slot",
            "earlier_slot",
            "step",
            "visit",
            "k",
            "k_iterations",
            "index",
            "subtile",
            "turn",
            "processors",
        ),
        *("batch", "batches", "row", "column", "rows", "columns", "row_tile", "column_tile", "row_tiles"),
        *("column_tiles", "row_extent", "column_extent", "stream_extent", "ring", "ring_full", "ring_empty"),
        *(
            "unpacked_i4",
            "unpacked_u4",
            "unpacked_i8",
            "words",
            "spread",
            "each",
            "shape",
            "like",
            "left",
            "right",
        ),
        *("mul_bf16", "mul_f16", "sub_bf16", "sub_f16", "prepack"),
        *("larger", "largest_of_groups", "running_sums", "plus", "round_i8"),
        *("outputs", "tensors", "device", "low", "high", "split", "value", "INF", "NEG_INF"),
        *(
            "OPTIONS",
            "SIGNATURE",
            "VERSION",
            "SUBTILES",
            "INPUT_BUFFERS",
            "REFILL_PASSES",
            "REFILL_APART",
            "CONSTANTS_AHEAD",
            "INPUTS_AHEAD",
            "pause",
            *("ahead", "filled"),
            "RASTER_GROUP",
            "TAIL",
            "ROW_LENGTH",
        ),
    )
)


OVER_ROWS_WORDS = frozenset(
    (
        *(
            "part",
            "parts",
            "bundle",
            "bundles",
            "count",
            "first",
            "one",
            "sums",
            "begin",
            "counter",
            "inside",
        ),
        *("workspace", "arrivals", "own_part", "own_bundle", "first_part", "first_bundle", "thread_barrier"),
        *("last_to_arrive", "added_up", "PARTIAL_SUMS", "BUNDLE_PARTS", "PARTS_TOGETHER", "PARTS_LAYOUT"),
        *("largest_of", "end_of_rows", "result", "value", "place", "within", "column_blocks"),
        *("first_place", "first_counter"),
    )
)
"""Words of kernels whose blocks carry reductions over rows."""

FLAT_WORDS = frozenset(
    {
        "FLAT_STEP",
        "shift",
        "reach",
        "store_flat",
        "load_flat",
        "load_flat_rest",
        "pointer",
        "begin",
        "whole",
        "inside",
    }
    | {"at", "apart", "run", "rest", "within"}
)
"""Words of kernels whose rows are pieces of a flat row (`flat.py`)."""

TURNING_WORDS = frozenset({"TURNING_LAYOUT", "turned_rows", "turned_columns"})
"""Words of kernels whose threads read or store tiles that lie turned (`turning.py`)."""

DYNAMIC_WORDS = frozenset(
    (
        *("taken", "tile_numbers", "next_tile", "tell_tile", "told_tile"),
        *("NUMBERS_LAYOUT", "LOADER_NUMBER", "CONSUMER_NUMBER"),
    )
)
"""Words of kernels whose blocks take tiles at run time (`dynamic.py`)."""

SPLIT_WORDS = frozenset(
    (
        *("part", "parts", "other", "k_blocks", "places", "sums", "counter", "layout", "first", "last"),
        *("workspace", "arrivals", "own_part", "first_part", "turns", "thread_barrier"),
        *("part_at", "place", "tiles"),
        *("part_range", "places_of", "last_to_arrive", "combined", "SPLITS", "PARTIAL_SUMS"),
        *(
            "part_of",
            "places_in",
            "inside_of",
            "rows_of",
            "combine",
            "one_part",
            "inside",
            "number",
            "before",
        ),
        *("COMBINED_ROWS", "COMBINED_LAYOUT", "owed", "taken"),
        *("parts_first", "parts_last", "first_block", "own_block"),
        *(
            "share_of",
            "begin_of",
            "block_of",
            "counted",
            "added",
            "rounds",
            "pieces",
            "whole",
            "shared",
            "parts_of",
            "SHARED_K_BLOCKS",
            "block",
            "total",
            "blocks_of",
            "blocks",
            "blocks",
            "after",
        ),
        *(
            "share_begin",
            "share_end",
            "first_tile",
            "last_tile",
            "numbers",
            "start",
            "passed",
            "counts",
            "ends",
        ),
        *("COUNTED_TILES", "COUNTED_LAYOUT_1", "COUNTED_LAYOUT_4", "COUNTED_LAYOUT_8"),
    )
)
"""Names that the text of a kernel takes for itself where its sums are split (`splits.py`, `shares.py`)."""


SEGMENT_WORDS = frozenset(
    (
        *("segment", "segments", "first_row", "end_row", "passed", "copied_row", "stored_row"),
        *("end_of", "row_tiles_of", "segment_of", "RAGGED_LAYOUT", "staged_tile", "own_rows", "own_columns"),
    )
)
"""Names that the text of a kernel takes for itself where offsets cut its rows (`segments.py`)."""


_DERIVED = re.compile(
    r".*_(desc|ptr|ring|held|kept|depth|full|empty|input|staging|buffer|pending|loaded|stride|strides|extents|layout|slot|phase|before|after)",
    re.IGNORECASE,
)
_SUBTILE = re.compile(r".*_\d+")


@dataclass(slots=True)
class Names:
    """One scope: hands out an identifier for every key, the same one each time.

    With `subtiles`, names that end in a number are left to the subtiles that a tile is cut into.
    """

    subtiles: bool = False
    taken: set[str] = field(default_factory=set)
    given: dict[str, str] = field(default_factory=dict)

    def __call__(self, key: str, wish: str | None = None) -> str:
        """The identifier of `key`; `wish` is what it should look like, the key itself if not given."""
        if key not in self.given:
            name = wish or key
            while name in self.taken or is_reserved(name) or (self.subtiles and _SUBTILE.fullmatch(name)):
                name += "_"
            self.taken.add(name)
            self.given[key] = name
        return self.given[key]


def is_reserved(name: str) -> bool:
    """Whether a name means something else in an emitted kernel: Python's words, the kernel's own, and those
    made from a tensor's name and an ending.
    """
    return (
        _DERIVED.fullmatch(name) is not None
        or keyword.iskeyword(name)
        or keyword.issoftkeyword(name)
        or hasattr(builtins, name)
        or name in _KERNEL_WORDS
    )
