"""What torch knows of the extents of an FX graph that change from call to call, and what they are to our graphs.

Torch is not asked to compare what changes: it would note that as a condition, and compile a graph again for calls
where the condition does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from wsopt.graph.extents import Monomial, Terms, value_at
from wsopt.torch.sizes import Size
from wsopt.torch.untaken import Untaken
from wsopt.torch.values import Shape

LARGEST = 1 << 16
"""The largest extent that kernels are made for where torch knows of no bound."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol of torch: the range of what it may be, as far as kernels go, and what it is while a graph is compiled.
    It is `bounded` if torch knows the largest.

    The FX input `source` tells it: it is that number, or its extent along `axis`.
    """

    least: int
    most: int
    bounded: bool
    typical: int
    now: torch.SymInt
    source: fx.Node
    axis: int | None


@dataclass(slots=True)
class Symbols:
    """The symbols of an FX graph by name, and the extents that were asked for."""

    known: dict[str, Symbol] = field(default_factory=dict)
    _extents: dict[Any, int] = field(default_factory=dict)

    def extent(self, given: int | torch.SymInt) -> int:
        """An extent, or another whole number, as our graphs have it. Untaken for one that they cannot say."""
        if isinstance(given, int):
            return given
        expression = given.node.expr
        if expression not in self._extents:
            self._extents[expression] = self._said(expression)
        return self._extents[expression]

    def shape(self, tensor: torch.Tensor) -> Shape:
        """The shape of a tensor. Raises as `extent`."""
        return tuple(map(self.extent, tensor.shape))

    def strides(self, tensor: torch.Tensor) -> Shape | None:
        """The strides of a tensor; None where our graphs cannot say them."""
        try:
            return tuple(map(self.extent, tensor.stride()))
        except Untaken:
            return None

    @property
    def limits(self) -> dict[str, int]:
        """The largest that each symbol may be."""
        return {name: one.most for name, one in self.known.items()}

    def now(self, extent: int) -> Any:
        """An extent as torch has it."""
        values: dict[str, Any] = {name: one.now for name, one in self.known.items()}
        return value_at(extent, values)

    def _said(self, expression: Any) -> int:
        if expression.is_Integer:
            return int(expression)
        terms: dict[Monomial, int] = {}
        for product, times in expression.expand().as_coefficients_dict().items():
            names = self._names(product)
            if names is None or not times.is_Integer or times < 0:
                raise Untaken(
                    f"{expression} changes from call to call, and is no sum of products of inputs' extents"
                )
            terms[names] = int(times)
        ordered: Terms = tuple(sorted(terms.items(), key=lambda term: (not term[0], term[0])))
        return Size(ordered, {name: self.known[name].typical for names in terms for name in names})

    def _names(self, product: Any) -> Monomial | None:
        """The symbols of a product, each as often as it stands there; None where there is something else."""
        if product.is_Integer:
            return ()
        powers = product.as_powers_dict()
        if any(
            str(base) not in self.known or not power.is_Integer or power < 0 for base, power in powers.items()
        ):
            return None
        return tuple(sorted(str(base) for base, power in powers.items() for _ in range(int(power))))


def symbols_of(graph: fx.Graph) -> Symbols:
    """The symbols that the inputs of an FX graph tell by themselves."""
    known: dict[str, Symbol] = {}
    for node in graph.nodes:
        for axis, one in _told(node) if node.op == "placeholder" else ():
            name = str(one.node.expr)
            if one.node.expr.is_Symbol and one.node.has_hint() and name not in known:
                known[name] = _symbol(one, node, axis)
    return Symbols(known)


def _told(node: fx.Node) -> Iterator[tuple[int | None, torch.SymInt]]:
    """The numbers that change and that an input is, or has as extents."""
    val = node.meta.get("val", node.meta.get("example_value"))
    if isinstance(val, torch.SymInt):
        yield None, val
    elif isinstance(val, torch.Tensor) and val.layout is torch.strided:
        yield from ((axis, one) for axis, one in enumerate(val.shape) if isinstance(one, torch.SymInt))


def _symbol(now: torch.SymInt, source: fx.Node, axis: int | None) -> Symbol:
    found = now.node.shape_env.var_to_range[now.node.expr]
    typical = max(2, int(now.node.hint))
    # A number that a model is called with has no bound below either, and what is an extent of a kernel is 1 or more.
    least = max(1, int(found.lower)) if found.lower.is_Integer else 1
    # What torch calls unbounded is no number, or one that no extent is.
    bounded = bool(found.upper.is_Integer) and int(found.upper) < torch.iinfo(torch.int32).max
    most = int(found.upper) if bounded else max(LARGEST, 2 * typical)
    return Symbol(min(least, typical), max(most, typical), bounded, typical, now, source, axis)
