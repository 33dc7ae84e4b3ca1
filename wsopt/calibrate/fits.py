"""From raw measurements to figures of a machine file: one formula a figure, applied to every round by itself.

The spread of a figure is that of its values over the rounds, so what two measurements have in common cancels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wsopt.calibrate.catalog import COLUMNS, MMA_PER_K_BLOCK, SCALAR_ASM
from wsopt.calibrate.samples import Document, middle, spread

Values = Mapping[str, float]
Formula = Callable[[Values], float]
THREADS = 128
GROUPS = 3


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the machine file by its name there ("scalar.exp2"), with half the range of its rounds."""

    name: str
    value: float
    spread: float


def figures(document: Document) -> tuple[Figure, ...]:
    """Every figure whose measurements are there, in the order of FORMULAS."""
    found = []
    for name, formula in FORMULAS.items():
        samples = _over_rounds(formula, document.samples)
        if samples:
            value, resolution = middle(samples), _resolution(name)
            told = value if value > resolution else 0.0
            found.append(Figure(name, told, max(spread(samples), resolution)))
    return tuple(found)


def _resolution(name: str) -> float:
    """Least spread of a figure: a difference of two costs has theirs, however small the difference is."""
    if name.startswith("tile_start"):
        return 2.0
    return 0.02 if name.startswith("tile_") else 0.0


def needs(formula: Formula) -> frozenset[str]:
    """The names of the measurements that a formula reads."""
    seen = _Needs()
    with contextlib.suppress(ZeroDivisionError):
        formula(seen)
    return frozenset(seen.names)


def _over_rounds(formula: Formula, samples: Mapping[str, tuple[float, ...]]) -> list[float]:
    """The formula in every round that has all that it needs; nothing where it cannot be evaluated."""
    needed = needs(formula)
    if not needed <= samples.keys():
        return []
    rounds = min(len(samples[name]) for name in needed)
    try:
        return [formula({name: samples[name][i] for name in needed}) for i in range(rounds)]
    except ZeroDivisionError:
        return []


class _Needs(dict[str, float]):
    """Stands in for the measurements to learn which ones a formula reads."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __missing__(self, name: str) -> float:
        self.names.add(name)
        return 1.0


def line_fit(points: Mapping[float, float]) -> tuple[float, float]:
    """Start and slope of the straight line of least squares through `points`, y by x."""
    count = len(points)
    mean_x, mean_y = sum(points) / count, sum(points.values()) / count
    across = sum((x - mean_x) ** 2 for x in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points.items()) / across
    return mean_y - slope * mean_x, slope


def _scalar(kind: str, most_groups: int, steps: float = 1.0) -> Formula:
    """Instructions per SM and cycle, the best of one to `most_groups` warpgroups.

    `steps` are the instructions of the kind in one step of the chain.
    """

    def formula(v: Values) -> float:
        cycles = [v[f"scalar.{kind}.{groups}"] / groups for groups in range(1, most_groups + 1)]
        return steps * THREADS / min(cycles)

    return formula


def _slower(formulas: tuple[Formula, ...]) -> Formula:
    return lambda v: min([formula(v) for formula in formulas])


def _tile(op: str, base: str | None, groups: int, part: int, columns: tuple[int, ...] = COLUMNS) -> Formula:
    """Start (part 0) or cycles a column (part 1) of `op` less `base`, with `groups` warpgroups at it.

    With several, cycles are those of the SM's units: of one tile, where all warpgroups keep at theirs.
    """

    def formula(v: Values) -> float:
        points = {}
        for wide in columns:
            less = v[f"{base}.{wide}.{groups}"] if base else 0.0
            points[float(wide)] = (v[f"{op}.{wide}.{groups}"] - less) / groups
        return max(0.0, line_fit(points)[part])

    return formula


TILES: Mapping[str, tuple[str, str | None, tuple[int, ...]]] = {
    "row_max": ("reduce.max", "reduce.none", COLUMNS),
    "row_sum": ("reduce.sum", "reduce.none", COLUMNS),
    "dot_operand_16": ("cast.operand_16", "cast.none_16", COLUMNS),
    "dot_operand_8": ("cast.operand_8", "cast.none_8", COLUMNS),
    "shared_store_8": ("shared.store_8", None, (64, 128)),
    "shared_store_16": ("shared.store_16", None, (64, 128)),
    "shared_store_32": ("shared.store_32", None, (64, 128)),
    "shared_load_16": ("shared.load_16", None, (64, 128)),
    "shared_load_32": ("shared.load_32", None, (64, 128)),
}
"""By tile operation: its measurement, the one to take off, and the columns that were measured."""


def _tiles() -> dict[str, Formula]:
    found: dict[str, Formula] = {}
    for kind, (op, base, columns) in TILES.items():
        found[f"tile_start.{kind}"] = _tile(op, base, 1, 0, columns)
        found[f"tile_alone.{kind}"] = _tile(op, base, 1, 1, columns)
        found[f"tile_crowded.{kind}"] = _tile(op, base, GROUPS, 1, columns)
    return found


def _words(cycles: Formula) -> Formula:
    return lambda v: 32 / cycles(v)


_PLAIN = tuple(k for k in SCALAR_ASM if not k.startswith(("convert_f", "convert_to", "select")))


def _scalars() -> dict[str, Formula]:
    found: dict[str, Formula] = {}
    for table, groups in (("scalar", GROUPS), ("scalar_alone", 1)):
        found |= {f"{table}.{kind}": _scalar(kind, groups) for kind in _PLAIN}
        # A comparison and a selection on one pipe: each takes half the time of both.
        found |= {f"{table}.{kind}": _scalar("select", groups, 2) for kind in ("compare", "select")}
        found[f"{table}.convert_f8"] = _scalar("convert_f8", groups, 2)
        both = (_scalar("convert_to_int", groups), _scalar("convert_from_int", groups))
        found[f"{table}.convert_int"] = _slower(both)
        # A column of 64 rows of 16 bits is 32 words.
        words = _tile("shared.load_16", None, groups, 1, (64, 128))
        found[f"{table}.ldst"] = _words(words)
    return found


def _mma(place: str, columns: int) -> Formula:
    """Cycles of a tensor instruction where two warpgroups keep the tensor core busy."""
    name = f"mma.bf16.{place}.{columns}.4.2"
    return lambda v: v[name] / (2 * 4 * MMA_PER_K_BLOCK)


def _mma_least(part: int) -> Formula:
    """Start or cycles a column of an instruction too narrow for its left operand, in shared memory."""
    return lambda v: line_fit({float(n): _mma("shared", n)(v) for n in (8, 16, 32)})[part]


def _mma_latency(place: str, columns: int) -> Formula:
    """Formula of the cycles that one K-block takes beyond its time in the tensor core, the wait included."""
    name, each = f"mma.bf16.{place}.{columns}.1.1", _mma(place, columns)
    return lambda v: v[name] - MMA_PER_K_BLOCK * each(v)


def _mma_queue(v: Values) -> float:
    """Tensor instructions not yet done when the last of sixteen has been issued."""
    each = _mma("shared", 128)(v)
    return 4 * MMA_PER_K_BLOCK - v["mma_issue.bf16.128.4.1"] / each


FORMULAS: Mapping[str, Formula] = {
    **_scalars(),
    **_tiles(),
    "mma_least_cycles": _mma_least(0),
    "mma_least_cycles_per_column": _mma_least(1),
    "mma_least_cycles_registers": _mma("registers", 8),
    "mma_queue": _mma_queue,
    "latency.mma_issue": lambda v: v["mma_issue.bf16.128.1.1"] / MMA_PER_K_BLOCK,
    "latency.mma_latency": _mma_latency("shared", 128),
    "latency.mma_latency_registers": _mma_latency("registers", 128),
    "latency.mbarrier_wait": lambda v: v["sync.wait.4"] - v["sync.barrier.4"],
    "latency.mbarrier_arrive": lambda v: v["sync.arrive.4"],
    "latency.mbarrier_wake": lambda v: v["sync.hop.4"] - v["sync.arrive.4"],
    "latency.barrier": lambda v: v["sync.barrier.4"],
    "latency.fence": lambda v: v["sync.fence.4"],
    "latency.arithmetic": lambda v: v["latency.arithmetic"],
    "latency.special": lambda v: v["latency.special"],
    "latency.shuffle": lambda v: v["latency.shuffle"],
    "latency.smem_load": lambda v: v["latency.load"],
    "latency.smem_store": lambda v: v["latency.store_load"] - v["latency.load"],
    "latency.tma_load_l2": lambda v: v["load.l2.128x64.1.few"],
    "latency.tma_load_dram": lambda v: v["load.dram.128x64.1.few"],
    "latency.tma_store": lambda v: v["store.128x64.0.few"],
    "tma_box_cycles": lambda v: v["load.l2.8x64.6.few"],
    "tma_bytes_per_cycle": lambda v: 128 * 64 * 2 / v["load.l2.128x64.6.few"],
    "tma_store_box_cycles": lambda v: 2 * v["store.64x64.0.few"] - v["store.128x64.0.few"],
    "tma_store_bytes_per_cycle": lambda v: 64 * 64 * 2 / (v["store.128x64.2.few"] - v["store.64x64.2.few"]),
    "l2_bandwidth": lambda v: v["load.same.128x64.6.all.rate"],
    "l2_distinct_bandwidth": lambda v: v["load.l2.128x64.6.all.rate"],
    "dram_sustained_bandwidth": lambda v: v["memory.copy.rate"],
    "dram_read_bandwidth": lambda v: v["memory.read.rate"],
    "kernel_launch_us": lambda v: v["launch.empty.graph_us"],
    "block_start_cycles": lambda v: v["block.load.issue"],
    "block_turnover_cycles": lambda v: v["block.store.turnover"],
    "sustained_clock_mhz": lambda v: v["power.tensor.hot.mhz"],
}
"""Every figure that is measured, by its name in the machine file."""
