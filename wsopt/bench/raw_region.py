"""Reads the region that schedule.json records with the standard library alone, as `raw_graph` reads the graph.

The words are those of `wsopt.program.types`; only what the baselines ask for is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wsopt.runtime.raw_graph import WORDS, Operand

ROW, STREAM, COLUMN, INNER = "row", "stream", "column", "inner"
BATCH, HEAD, GROUP = "batch", "head", "group"
PAGE = "page"
K_BLOCK, TILE = frozenset({ROW, STREAM}), frozenset({ROW, COLUMN})


@dataclass(frozen=True, slots=True)
class RawView:
    """How a tensor lies, dimension by dimension, named by axes; strides in elements.

    `origin` are the dimensions of the graph's tensor that each stands for, `parts` what it takes of the first
    and last of them: see `wsopt.tensors.views.View`. `offset` is where it begins in the tensor, in elements; `padded`
    is a view with zeros around it.
    """

    tensor: str
    dtype: str
    roles: tuple[str, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    origin: tuple[tuple[int, ...], ...]
    parts: tuple[tuple[int, int], ...]
    offset: int = 0
    padded: bool = False

    def stride(self, role: str) -> int:
        """Elements between neighbours along an axis; 0 where the tensor is broadcast along it."""
        return self.strides[self.roles.index(role)] if role in self.roles else 0

    def sizes(self, role: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The extents that were merged into an axis, outer ones first, for a tensor of the graph's shape."""
        place = self.roles.index(role)
        take, step = self.parts[place] if self.parts else (0, 1)
        found = [shape[dim] for dim in self.origin[place]]
        found[-1] //= step
        found[0] = take or found[0]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class RawItem:
    """A value of the loop or the epilogue: `op` is a primitive, `max` or `sum` of its one argument along the
    streamed axis, or `product` of two views (the first an argument where it is a value of the loop).
    """

    name: str
    op: str
    args: tuple[Operand, ...]
    spans: frozenset[str]
    rescale: str | None = None
    left: RawView | None = None
    right: RawView | None = None


@dataclass(frozen=True, slots=True)
class RawOutput:
    """An output of the graph: the value that is stored, and where."""

    name: str
    value: str
    view: RawView


@dataclass(frozen=True, slots=True)
class RawRegion:
    """A recorded region: `body` is computed K-block by K-block, `statements` after the loop; `sources` by name."""

    extents: Mapping[str, int]
    body: tuple[RawItem, ...]
    statements: tuple[RawItem, ...]
    sources: Mapping[str, RawView]
    outputs: tuple[RawOutput, ...]

    def item(self, name: Operand) -> RawItem | None:
        """The value of this name that the loop or the epilogue computes, or None."""
        return next((item for item in (*self.body, *self.statements) if item.name == name), None)


def raw_region(data: Mapping[str, Any]) -> RawRegion:
    """The region of its JSON data. Raises KeyError, TypeError or ValueError if it is none."""
    return RawRegion(
        dict(data["extents"]),
        tuple(_item(item) for item in data["body"]),
        tuple(_item(item) for item in data["statements"]),
        {item["name"]: _view(item["view"]) for item in data["sources"]},
        tuple(RawOutput(item["name"], item["value"], _view(item["view"])) for item in data["outputs"]),
    )


def _item(data: Mapping[str, Any]) -> RawItem:
    name = data["name"]
    if "primitive" in data:
        args = tuple(WORDS.get(arg, arg) for arg in data["args"])
        return RawItem(name, data["primitive"], args, frozenset(data["spans"]))
    if "kind" in data:
        return RawItem(name, data["kind"], (data["value"],), frozenset({ROW}), data["rescale"])
    value = isinstance(data["left"], str)
    return RawItem(
        name,
        "product",
        (data["left"],) if value else (),
        frozenset(data["spans"]),
        data["rescale"],
        None if value else _view(data["left"]),
        _view(data["right"]),
    )


def _view(data: Mapping[str, Any]) -> RawView:
    extents, strides = tuple(data["extents"]), tuple(data["strides"])
    cutouts = [*zip(data.get("cutouts", ()), extents, strides, strict=False)]
    begins = (cutout[0] * stride for cutout, _, stride in cutouts if cutout)
    return RawView(
        data["tensor"],
        data["dtype"],
        tuple(data["roles"]),
        extents,
        strides,
        tuple(map(tuple, data["origin"])),
        tuple((take, step) for take, step in data["parts"]),
        data.get("offset", 0) + sum(begins),
        any(not 0 <= cutout[0] <= cutout[2] - extent for cutout, extent, _ in cutouts if cutout),
    )
