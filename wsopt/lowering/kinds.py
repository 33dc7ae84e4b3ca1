"""Kinds of operations that are added to the loop: where they stand among its steps, what they cost, their text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from wsopt.entries import Table
from wsopt.frontend.types import Region
from wsopt.lowering.cut import Step
from wsopt.machine.types import Machine
from wsopt.program.types import Structure

Insert = Callable[[Sequence[Step], Region, Structure, Machine], Iterable[Step]]


@dataclass(frozen=True, slots=True)
class KindEntry:
    """A kind of operation that consumers do once a K-block.

    `insert(steps, region, structure, machine)` gives the steps of a consumer's loop with one of this kind among them:
    of kind `OpKind.ADDED`, with the entry's name for its subject, its cost, and tiles of rings for inputs. What comes
    after it says so, but for the return of the slots that it reads. `text` is a Jinja template of its lines, in which
    `tiles` are its inputs as matrices in shared memory, and `words` is what reports call it.
    """

    name: str
    words: str
    insert: Insert
    text: str


KINDS: Table[KindEntry] = Table("kind of operation")
"""The kinds that were added, by name."""


def with_kinds(steps: Sequence[Step], region: Region, s: Structure, machine: Machine) -> Sequence[Step]:
    """The steps of a consumer's loop with those of the kinds that were added."""
    for entry in KINDS.values():
        steps = tuple(entry.insert(steps, region, s, machine))
    return steps
