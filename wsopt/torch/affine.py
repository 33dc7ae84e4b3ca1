"""Integers that are affine functions of their indices: positions, and what is computed of positions alone.

Nothing here asks how long a dimension is, so that all holds where extents change from call to call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wsopt.torch.sizes import changes
from wsopt.torch.untaken import Untaken
from wsopt.torch.values import Shape

_LONGEST = (1 << 31) - 1
"""No dimension that changes is longer: its indices are numbers of 32 bits."""


@dataclass(frozen=True, slots=True)
class Affine:
    """A tensor of which each element is `first` plus, for each dimension, its `step` times the index. Dimensions of
    extent 1 have a step of 0. Truth values are 0 and 1.
    """

    shape: Shape
    first: int
    steps: tuple[int, ...]

    @property
    def is_constant(self) -> bool:
        """Whether all elements are the same."""
        return not any(self.steps)

    @property
    def ends(self) -> tuple[int, int]:
        """A lower and an upper bound of the elements, at every call."""
        ways = [step * _last(extent) for step, extent in zip(self.steps, self.shape, strict=True)]
        return self.first + sum(min(0, one) for one in ways), self.first + sum(max(0, one) for one in ways)

    def broadcast(self, shape: Shape) -> Affine:
        """The tensor with dimensions of extent 1, or new ones in front, repeated."""
        return Affine(shape, self.first, (0,) * (len(shape) - len(self.steps)) + self.steps)

    def scaled(self, factor: int) -> Affine:
        """Every element times a number."""
        return Affine(self.shape, self.first * factor, tuple(step * factor for step in self.steps))

    def __add__(self, other: Affine) -> Affine:
        """The sum of two tensors of one shape."""
        steps = tuple(a + b for a, b in zip(self.steps, other.steps, strict=True))
        return Affine(self.shape, self.first + other.first, steps)

    def viewed(self, shape: Shape) -> Affine:
        """The tensor in another shape of as many elements. Untaken where dimensions with a step become others."""
        if self.is_constant:
            return constant(self.first, shape)
        own = [(n, step) for n, step in zip(self.shape, self.steps, strict=True) if n != 1]
        if [n for n, _ in own] != [n for n in shape if n != 1]:
            raise Untaken("indices in another shape")
        left = iter(own)
        return Affine(shape, self.first, tuple(0 if n == 1 else next(left)[1] for n in shape))

    def part(self, dim: int, start: int, step: int, shape: Shape) -> Affine:
        """Every `step`-th element along a dimension from `start` on, which there is, in a shape of as many
        dimensions.
        """
        own = self.steps[dim]
        steps = [*self.steps]
        steps[dim] = 0 if shape[dim] == 1 else own * step
        return Affine(shape, self.first + own * start, tuple(steps))


def constant(value: int, shape: Shape = ()) -> Affine:
    """The same number everywhere."""
    return Affine(shape, value, (0,) * len(shape))


def joined(parts: Sequence[Affine], dim: int, shape: Shape) -> Affine:
    """Tensors one behind the other along a dimension, in the shape that comes of it. Untaken where one does not go
    on as the one before it does, and behind one whose length changes.
    """
    found = parts[0]
    for part in parts[1:]:
        length = found.shape[dim]
        if changes(length):
            raise Untaken("indices behind a dimension that changes")
        step = part.steps[dim] if length == 1 else found.steps[dim]
        apart = length == 1 and part.shape[dim] == 1
        step = part.first - found.first if apart else step
        goes_on = part.first == found.first + step * length and _without(part.steps, dim) == _without(
            found.steps, dim
        )
        if not goes_on or (part.shape[dim] != 1 and part.steps[dim] != step):
            raise Untaken("integers that are no indices")
        extents = (*found.shape[:dim], length + part.shape[dim], *found.shape[dim + 1 :])
        found = Affine(extents, found.first, (*found.steps[:dim], step, *found.steps[dim + 1 :]))
    if found.shape != shape:
        raise Untaken("indices in another shape")
    return found


def _last(extent: int) -> int:
    """The last index along a dimension, at most."""
    return _LONGEST if changes(extent) else extent - 1


def _without(steps: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return steps[:dim] + steps[dim + 1 :]
