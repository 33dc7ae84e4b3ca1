"""What one K-block of a loop computes, cut into steps: products, phases of arithmetic between them, rescalings.

A phase is a run of arithmetic that needs nothing but what products and earlier phases have left: values of a
K-block, their reductions along the streamed axis, and what is computed of those for each row. A value that needs
a row's reduced value of the same K-block begins a new phase, for the reduction has to end first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wsopt.frontend.types import Contraction, Region
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import FULL, K_BLOCK, Role, View

BodyItem = Statement | Reduction | Contraction
BEFORE = ".before"
"""What the name of a reduction ends in where its value before the K-block is meant."""


class StepKind(StrEnum):
    """What a step is."""

    SCORES = "scores"
    PHASE = "phase"
    RESCALE = "rescale"
    SUMS = "sums"


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a product, or the body's items that a phase computes in order."""

    kind: StepKind
    name: str
    items: tuple[BodyItem, ...]

    @property
    def product(self) -> Contraction:
        """The product of a step that is one, or whose sums it rescales."""
        (item,) = self.items
        assert isinstance(item, Contraction), f"{self.name} is no product's step"
        return item


def arguments(item: BodyItem) -> tuple[str, ...]:
    """The names that an item of the body reads, tensors left out."""
    if isinstance(item, Statement):
        return tuple(a for a in item.args if isinstance(a, str))
    names = (
        (item.left if isinstance(item.left, str) else None,)
        if isinstance(item, Contraction)
        else (item.value,)
    )
    return tuple(name for name in (*names, item.rescale) if name is not None)


def is_scores(item: BodyItem) -> bool:
    """Whether an item is a product whose result is a value of the loop."""
    return isinstance(item, Contraction) and item.spans == K_BLOCK


def is_sums(item: BodyItem) -> bool:
    """Whether an item is a product that is summed over the streamed axis, after all phases."""
    return isinstance(item, Contraction) and item.spans == FULL


def _levels(region: Region) -> dict[str, int]:
    """The phase of every item: one more than those of products and of row values that a K-block's value needs."""
    level: dict[str, int] = {}
    late: set[str] = set()
    rows: set[str] = set()
    for item in region.body:
        names = [name for name in arguments(item) if name in level]
        tile = is_scores(item) or (isinstance(item, Statement) and Role.STREAM in item.spans)
        level[item.name] = max((level[n] + (n in late or (tile and n in rows)) for n in names), default=0)
        if is_scores(item):
            late.add(item.name)
        elif isinstance(item, Reduction) or (not tile and rows & set(names)):
            rows.add(item.name)
    return _put_off(region, level)


def _put_off(region: Region, level: dict[str, int]) -> dict[str, int]:
    """Arithmetic goes with the first that uses it: next to its reader a product is part of an addition."""
    for item in reversed(region.body):
        if isinstance(item, Statement):
            users = [level[u.name] for u in region.body if item.name in arguments(u) and not is_sums(u)]
            level[item.name] = max(1, level[item.name], min(users, default=1))
    return level


def steps(region: Region) -> tuple[Step, ...]:
    """The steps of a region's body, each after those that it needs."""
    level = _levels(region)
    found: list[tuple[int, int, Step]] = []
    found += [
        (level[item.name], 1, Step(StepKind.SCORES, item.name, (item,)))
        for item in region.body
        if is_scores(item)
    ]
    for number in sorted({level[i.name] for i in region.body if not isinstance(i, Contraction)}):
        own = tuple(i for i in region.body if not isinstance(i, Contraction) and level[i.name] == number)
        found.append((number, 0, Step(StepKind.PHASE, f"phase{number}", own)))
    last = max((key for key, *_ in found), default=0) + 1
    for item in region.body:
        if isinstance(item, Contraction) and item.spans == FULL:
            if item.rescale is not None:
                found.append((last, 0, Step(StepKind.RESCALE, item.name, (item,))))
            found.append((last, 1, Step(StepKind.SUMS, item.name, (item,))))
    return tuple(step for _, _, step in sorted(found, key=lambda one: one[:2]))


def streamed(region: Region, step: Step) -> tuple[View, ...]:
    """The streamed tensors that a phase's values read, each once."""
    names = (
        {name for item in step.items for name in arguments(item)} if step.kind is StepKind.PHASE else set()
    )
    return tuple(dict.fromkeys(s.view for s in region.streamed_sources if s.name in names))


def spans_of(region: Region, name: str) -> frozenset[Role]:
    """The axes that a value of the loop varies along."""
    for item in region.body:
        if item.name == name.removesuffix(BEFORE):
            return frozenset({Role.ROW}) if isinstance(item, Reduction) else item.spans
    return next(source.spans for source in region.sources if source.name == name)
