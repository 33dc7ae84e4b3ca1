"""A random graph in the making: choices from a seeded generator, inputs, extents, and the features that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from wsopt.graph.builder import GraphBuilder, Symbol

T = TypeVar("T")

SOURCES = {"bf16": 6, "f16": 4, "f32": 6, "f8e4m3": 0.15, "i8": 0.1, "i32": 0.1}
"""Element types of tensors beside the products, by weight; the last ones are seldom lowered."""

EXTENTS: Mapping[str, tuple[float, Sequence[int]]] = {
    "extent whole": (6, (64, 128, 192, 256, 512)),
    "extent ragged": (5, (40, 72, 136, 200, 328, 520)),
    "extent large": (2, (1000, 1024, 2048, 4096)),
    "extent small": (2, (8, 16, 24, 32)),
    "extent one": (0.4, (1,)),
    "extent odd": (0.2, (3, 5, 7, 37, 99, 130, 257)),
}
"""Extents by the feature that they are, each with its weight."""


@dataclass(slots=True)
class Draft:
    """A graph that is being drawn. `features` are the names of what has been put into it."""

    rng: np.random.Generator
    g: GraphBuilder
    features: set[str] = field(default_factory=set)
    _names: dict[str, int] = field(default_factory=dict)

    def mark(self, *features: str) -> None:
        """Note that the graph has these features."""
        self.features.update(features)

    def chance(self, probability: float) -> bool:
        """True as often as `probability` says."""
        return bool(self.rng.random() < probability)

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[int(self.rng.integers(len(options)))]

    def weighted(self, options: Mapping[T, float]) -> T:
        """One of the options, as likely as its weight says."""
        weights = np.array(list(options.values()), dtype=float)
        return list(options)[int(self.rng.choice(len(weights), p=weights / weights.sum()))]

    def number(self) -> float:
        """A number of everyday size."""
        return self.pick((2.0, 0.5, -1.25, 3.0, 0.1, -0.75))

    def extent(self, *, any_number: bool = True, most: int = 2**31) -> int:
        """An extent of at most `most`; without `any_number` it is a multiple of eight but for few graphs."""
        weights = {name: weight for name, (weight, sizes) in EXTENTS.items() if min(sizes) <= most}
        if any_number:
            weights |= {"extent one": 1.5, "extent odd": 2.5}
        kind = self.weighted(weights)
        self.mark(kind)
        return self.pick([size for size in EXTENTS[kind][1] if size <= most])

    def fresh(self, hint: str) -> str:
        """A name that begins with `hint` and that no tensor has."""
        number = self._names.get(hint, 0)
        self._names[hint] = number + 1
        return f"{hint}{number}" if number else hint

    def tensor(
        self, hint: str, shape: Sequence[int], dtype: str, *, constant: bool = False, plain: bool = False
    ) -> Symbol:
        """An input; unless it is to be `plain`, some are strided."""
        strides = None if plain or len(shape) < 2 else self._strides(tuple(shape))
        name = self.fresh(hint)
        if constant:
            self.mark("constant input")
        return self.g.input(name, shape, dtype, constant=constant, strides=strides)

    def source(self, hint: str, shape: Sequence[int]) -> Symbol:
        """An input beside the products, of any type."""
        dtype = self.weighted(SOURCES)
        if SOURCES[dtype] < 1:
            self.mark(f"source of {dtype}")
        return self.tensor(hint, shape, dtype)

    def _strides(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Strides of a view of a larger tensor, of a transposed one, or of one that repeats; mostly none."""
        kind = self.weighted({"": 24, "padded": 2, "transposed": 0.5, "repeated": 0.15, "unaligned": 0.15})
        if not kind:
            return None
        self.mark(f"strides {kind}")
        wide = list(shape)
        wide[-1] = -(-shape[-1] // 8) * 8 + {"padded": 16, "unaligned": 3}.get(kind, 0)
        order = list(range(len(shape)))
        if kind == "transposed":
            order[-2:] = order[:-3:-1]
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= wide[axis] if kind != "transposed" else -(-shape[axis] // 16) * 16
        if kind == "repeated":
            strides[-2] = 0
        return tuple(strides)
