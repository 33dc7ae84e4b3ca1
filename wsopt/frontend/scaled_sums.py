"""Scales of groups as factors of partial sums: the other way to compute a product of weights in groups.

A weight is a number times its group's scale. Where the number alone is exact in the type that its product takes, the
scale is as well a factor of the group's partial sum, which has fewer elements than the group has weights where a
product has few columns (GRAPH.md, 'What a compiler may change').
"""

from __future__ import annotations

from dataclasses import replace

from wsopt.frontend.types import Contraction, Region
from wsopt.graph.types import DType
from wsopt.primitives import Family, family_of
from wsopt.tensors.statements import Statement
from wsopt.tensors.views import K_BLOCK, Packing, Source

_Body = dict[str, Statement]


def with_scaled_sums(region: Region) -> Region:
    """The region with its other way: `scaled_sums` is the region in which scales of groups are factors of partial
    sums; the region as it is where it has no such scales.
    """
    body = {item.name: item for item in region.body if isinstance(item, Statement)}
    found = [_scaled(region, body, one) for one in region.contractions]
    if not body or len(body) + len(found) < len(region.body) or None in found:
        return region
    products, numbers = zip(*(one for one in found if one is not None), strict=True)
    items = (*_read(body, numbers), *products)
    return replace(region, scaled_sums=replace(region, contractions=products, body=items))


def _scaled(region: Region, body: _Body, product: Contraction) -> tuple[Contraction, Statement] | None:
    """A product of numbers whose partial sums have a factor, and what makes the numbers; None if it has none."""
    made = body.get(product.left) if isinstance(product.left, str) else None
    if made is None or made.dtype not in (DType.BF16, DType.F16):
        return None
    scaled = body.get(str(made.args[0])) if family_of(made.primitive) is Family.ROUNDING else made
    if scaled is None or scaled.primitive != "mul":
        return None
    sources = {source.name: source for source in region.sources}
    for number, scale in (scaled.args, scaled.args[::-1]):
        found = sources.get(str(scale))
        if found is not None and _is_scale(found) and _is_exact(str(number), body, sources, made.dtype):
            rounded = Statement(made.name, f"round_{made.dtype.value}", (number,), K_BLOCK, made.dtype)
            numbers = body.get(str(number), rounded)
            return replace(product, left=numbers.name, promote=True, factors=(found.name,)), numbers
    return None


def _is_scale(source: Source) -> bool:
    """Whether a tensor has an element for each group of a row."""
    return source.spans == K_BLOCK and source.view.each > 1 and source.view.dtype.is_float


def _is_exact(name: str, body: _Body, sources: dict[str, Source], dtype: DType) -> bool:
    """Whether a type has every value of a number: a whole one of eight bits or fewer, taken apart in that type; or
    one that is computed in it because it has them (`frontend/narrow.py`).
    """
    if name in body:
        return body[name].dtype is dtype
    source = sources.get(name)
    return source is not None and source.view.packing is Packing.FRAGMENTS


def _read(body: _Body, numbers: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Statements with all that they read of a loop's, in the loop's order."""
    wanted = {one.name: one for one in numbers}
    for item in reversed(body.values()):
        if item.name in {name for one in wanted.values() for name in one.reads}:
            wanted[item.name] = item
    known = (item for item in body.values() if item.name in wanted)
    return tuple(dict.fromkeys(wanted[item.name] for item in known))
