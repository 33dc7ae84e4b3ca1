"""The named dimensions of a graph: their ranges, their typical extents, and how the inputs' shapes tell them.

"dims": {"tokens": {"min": 1, "max": 8192, "typical": [1, 16, 512]}}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wsopt.graph.extents import Extent, Terms, read_extent
from wsopt.graph.faults import Faults, join, quote
from wsopt.graph.fields import is_integer, read_name, read_object
from wsopt.graph.infer import MAX_EXTENT
from wsopt.graph.op_spec import AttrKind
from wsopt.graph.ops import OPS
from wsopt.graph.types import Input

DIM_KEYS = (("min", "max"), ("typical",))
MOST_DIMS = 4
_MOST_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Dim:
    """A named dimension: its least and largest extent, and typical ones with their weights, in ascending order."""

    name: str
    least: int
    most: int
    typical: tuple[tuple[int, float], ...] = ()

    @property
    def weights(self) -> dict[int, float]:
        """How often each typical extent comes, as shares of 1; empty without typical ones."""
        total = math.fsum(weight for _, weight in self.typical)
        return {extent: weight / total for extent, weight in self.typical}

    def to_json(self) -> dict[str, Any]:
        """The dimension as a graph.json has it."""
        alike = all(weight == 1 for _, weight in self.typical)
        listed = [extent for extent, _ in self.typical]
        typical = listed if alike else {str(extent): weight for extent, weight in self.typical}
        return {"min": self.least, "max": self.most, **({"typical": typical} if self.typical else {})}


# --- reading --------------------------------------------------------------------------------------------


def read_dims(value: object, pointer: str, faults: Faults) -> tuple[Dim, ...]:
    """The dimensions in the order of the file; those that are faulty are left out."""
    if not isinstance(value, dict):
        faults.wants(pointer, "an object: the dimensions by name", value)
        return ()
    if not 1 <= len(value) <= MOST_DIMS:
        faults.add(pointer, f"found {len(value)} dimensions; a graph has 1 to {MOST_DIMS}, or no dims at all")
    for key in getattr(value, "duplicates", ()):
        faults.add(join(pointer, key), f"the key {quote(key)} stands more than once")
    found = (read_dim(name, entry, join(pointer, name), faults) for name, entry in value.items())
    return tuple(dim for dim in found if dim is not None)


def read_dim(name: str, value: object, pointer: str, faults: Faults) -> Dim | None:
    """One dimension; None if its name or its range is faulty."""
    before = len(faults)
    read_name(name, pointer, faults)
    entry = read_object(value, pointer, *DIM_KEYS, faults)
    if entry is None:
        return None
    ends = [_extent(entry[key], join(pointer, key), faults) for key in DIM_KEYS[0] if key in entry]
    if len(faults) > before:
        return None
    least, most = (end for end in ends if end is not None)
    if least > most:
        faults.add(pointer, f"min {least} is above max {most}: the range is empty")
        return None
    typical = _typical(entry.get("typical", []), (least, most), join(pointer, "typical"), faults)
    return Dim(name, least, most, typical)


def _extent(value: object, pointer: str, faults: Faults) -> int | None:
    if is_integer(value) and 1 <= value <= MAX_EXTENT:
        return value
    faults.wants(pointer, "an integer from 1 to 2**31 - 1", value)
    return None


def _typical(
    value: object, ends: tuple[int, int], pointer: str, faults: Faults
) -> tuple[tuple[int, float], ...]:
    """Extents with their weights: those of a list count alike."""
    if isinstance(value, list):
        entries = [(extent, 1.0, join(pointer, place)) for place, extent in enumerate(value)]
    elif isinstance(value, dict):
        keyed = ((_number(key), weight, join(pointer, key)) for key, weight in value.items())
        entries = [one for one in keyed if _is_weight(one[1], one[2], faults)]
    else:
        faults.wants(pointer, "an array of extents, or an object of weights by extent", value)
        return ()
    found: dict[int, float] = {}
    for extent, weight, at in entries:
        if not is_integer(extent) or not ends[0] <= extent <= ends[1]:
            faults.wants(at, f"an extent of the range, {ends[0]} to {ends[1]}", extent)
        elif extent in found:
            faults.add(at, f"{extent} stands more than once")
        else:
            found[extent] = float(weight)
    return tuple(sorted(found.items()))


def _number(text: str) -> object:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else text


def _is_weight(value: object, pointer: str, faults: Faults) -> bool:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    if not good:
        faults.wants(pointer, "a weight: a number above 0", value)
    return good


def with_extents(fields: Mapping[str, Any], dims: Sequence[Dim]) -> dict[str, Any]:
    """A graph's fields without `dims`, and with expressions read wherever extents stand; the others as they are.

    Text that is no expression becomes a `BadExtent`, for the reader of that place to report.
    """
    least = {dim.name: dim.least for dim in dims}
    found = {key: value for key, value in fields.items() if key != "dims"}
    for section, read in (("inputs", input_extents), ("nodes", node_extents)):
        if isinstance(found.get(section), list):
            found[section] = [read(entry, least) for entry in found[section]]
    return found


def input_extents(entry: Any, least: Mapping[str, int]) -> Any:
    """An entry of `inputs` with the expressions of its shape read."""
    return _with_shape(entry, "shape", least)


def node_extents(entry: Any, least: Mapping[str, int]) -> Any:
    """An entry of `nodes` with the expressions in its attributes read."""
    if not isinstance(entry, dict) or not isinstance(entry.get("attrs"), dict):
        return entry
    op = entry.get("op")
    spec = OPS.get(op) if isinstance(op, str) else None
    attrs = entry["attrs"]
    for attr in spec.attrs if spec is not None else ():
        if attr.kind in (AttrKind.SHAPE, AttrKind.COUNTS):
            attrs = _with_shape(attrs, attr.name, least)
        elif attr.kind is AttrKind.PLACE and isinstance(attrs.get(attr.name), str):
            attrs = _replaced(attrs, attr.name, read_extent(attrs[attr.name], least))
    return _replaced(entry, "attrs", attrs)


def _with_shape(entry: Any, key: str, least: Mapping[str, int]) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry.get(key), list):
        return entry
    read = [read_extent(one, least) if isinstance(one, str) else one for one in entry[key]]
    return _replaced(entry, key, read)


def _replaced(entry: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of the same kind, which may know of keys that stood more than once."""
    copied = type(entry)(entry)
    copied[key] = value
    if hasattr(entry, "duplicates"):
        copied.duplicates = entry.duplicates  # type: ignore[attr-defined]
    return copied


# --- what a call tells ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """Where a call's inputs tell a dimension: (extent of `tensor` along `axis` - `rest`) / `factor`, which may hold
    dimensions that were told before.
    """

    dim: str
    tensor: str
    axis: int
    factor: int
    rest: int


def told_by(inputs: Iterable[Input], dims: Sequence[Dim]) -> tuple[Told, ...]:
    """How a call's inputs tell the dimensions, in an order in which they can be found; those that cannot are left
    out.
    """
    found: dict[str, Told] = {}
    every = [
        (item.name, axis, extent)
        for item in inputs
        for axis, extent in enumerate(item.type.shape)
        if isinstance(extent, Extent)
    ]
    # Extents that are a dimension and nothing else come first: they cost a call the least.
    every.sort(key=lambda one: len(one[2].terms) + len(one[2].terms[0][0]))
    for _ in dims:
        for tensor, axis, extent in every:
            unknown = sorted(extent.names - found.keys())
            if len(unknown) == 1 and (split := _split(extent, unknown[0])):
                found[unknown[0]] = Told(unknown[0], tensor, axis, *split)
    return tuple(found.values())


def _split(extent: Extent, dim: str) -> tuple[int, int] | None:
    """The factor of a dimension and the rest of an extent; None where the dimension is multiplied by itself."""
    if any(product.count(dim) > 1 for product, _ in extent.terms):
        return None
    least = dict.fromkeys(extent.names, 1)
    has: Terms = tuple(
        (tuple(name for name in product if name != dim), times)
        for product, times in extent.terms
        if dim in product
    )
    rest: Terms = tuple((product, times) for product, times in extent.terms if dim not in product)
    factor, left = (Extent(terms, 0) for terms in (has, rest))
    plain = (one if one.names else one.at(least) for one in (factor, left))
    return next(plain), next(plain)
