"""Conditions that a schedule is asked to meet, beside being the best: fields of its structure and of its epilogue's
buffers, slots of its rings, the warps that fill them, and how a consumer's iterations overlap.

`schedule/spec.py` reads them from text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from wsopt.program.types import Structure

Setting = int | bool | str
Settings = tuple[tuple[str, Setting], ...]
"""Fields by name, each with the value that it is to have."""

EVERY_RING = "ring"
"""Stands for all rings of a loop; where there is one alone it is its name."""


class Overlap(StrEnum):
    """Demand on the order of a consumer's K-blocks: forms that experts have published. The search takes what is best.

    Two consumers hide the softmax of a K-block under the next K-block's first product, which each issues before it;
    three treat K-block after K-block, and the tensor core is filled by the others.
    """

    ANY = "any"
    NEXT_FIRST = "next product first"
    NONE = "K-block by K-block"


OVERLAPS = {"next": Overlap.NEXT_FIRST, "none": Overlap.NONE}
"""Overlaps by the word that asks for one."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a schedule is asked to have. `structure` and `buffers` are fields of those records, `slots` the depths of
    rings by name, where `EVERY_RING` stands for all, `loaders` the number of loading warps; what is not named, or 0,
    is free.
    """

    structure: Settings = ()
    buffers: Settings = ()
    slots: tuple[tuple[str, int], ...] = ()
    overlap: Overlap = Overlap.ANY
    loaders: int = 0

    def __bool__(self) -> bool:
        """Whether anything is asked."""
        return self != FREE

    @property
    def text(self) -> str:
        """All conditions as `field=value`, separated by commas: what `schedule/spec.py` reads; empty without any."""
        words = [f"{name}={said(value)}" for name, value in (*self.structure, *self.buffers, *self.slots)]
        words += [f"loaders={self.loaders}"] if self.loaders else []
        words += [f"overlap={word}" for word, overlap in OVERLAPS.items() if overlap is self.overlap]
        return ",".join(words)

    def admit(self, structure: Structure) -> bool:
        """Whether a structure has the fields asked for."""
        return _has(structure, self.structure)

    def allow(self, buffers: object) -> bool:
        """Whether a choice of epilogue buffers has the fields asked for."""
        return _has(buffers, self.buffers)

    def slots_of(self, ring: str) -> int:
        """The depth asked for of a ring, 0 for any."""
        asked = dict(self.slots)
        return asked.get(ring, asked.get(EVERY_RING, 0))

    @property
    def of_loop(self) -> Conditions:
        """The conditions of these that are about what consumers do in the loop."""
        return Conditions(overlap=self.overlap)

    def without_one(self) -> Iterator[tuple[str, Conditions]]:
        """Each condition's text, with the conditions that are left without it; the last one first."""
        if self.overlap is not Overlap.ANY:
            yield self.of_loop.text, replace(self, overlap=Overlap.ANY)
        if self.loaders:
            yield Conditions(loaders=self.loaders).text, replace(self, loaders=0)
        for ring in reversed(self.slots):
            yield (
                Conditions(slots=(ring,)).text,
                replace(self, slots=tuple(other for other in self.slots if other != ring)),
            )
        for one in reversed(self.buffers):
            yield Conditions(buffers=(one,)).text, replace(self, buffers=_less(self.buffers, one))
        for one in reversed(self.structure):
            yield Conditions(structure=(one,)).text, replace(self, structure=_less(self.structure, one))


FREE = Conditions()
"""Nothing is asked."""


def said(value: Setting) -> str:
    """A value as conditions and reports write it."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _has(one: object, settings: Settings) -> bool:
    return all(getattr(one, name) == value for name, value in settings)


def _less(settings: Settings, one: tuple[str, Setting]) -> Settings:
    return tuple(other for other in settings if other != one)


def lacking(conditions: Conditions, structures: Iterable[Structure]) -> str:
    """Why none of these structures is admitted: values that none has, beside those that there are, or fields that
    none has together.
    """
    known, told = tuple(structures), list[str]()
    if not known:
        return "none is legal"
    for name, value in conditions.structure:
        there = sorted({getattr(one, name) for one in known})
        if value not in there:
            told.append(f"none has {name}={said(value)} ({name} is {' or '.join(map(said, there))})")
    return "; ".join(told) or f"none has {Conditions(structure=conditions.structure).text} together"
