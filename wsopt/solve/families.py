"""Constraint families that are added to the model, each with the property of schedules that it stands for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wsopt import checker
from wsopt.entries import Table
from wsopt.solve.variables import Model


@dataclass(frozen=True, slots=True)
class Family(checker.Property):
    """A constraint family. `constrain(model)` adds it to a model; `check` yields the faults of a schedule that does
    not keep to it, found without the solver.

    It speaks of times between operations, of all consumers alike: the model has schedules that differ in nothing
    else once. With `steady` a schedule that keeps to it does so at a larger II too, its operations at the same
    stages and cycles; then the least II is found in fewer steps.
    """

    constrain: Callable[[Model], None]
    steady: bool = False


FAMILIES: Table[Family] = Table("constraint family")
"""The families that were added, by name."""


@contextlib.contextmanager
def added(*families: Family) -> Iterator[None]:
    """More families while the context lasts, in this process: the solver keeps to them and the checker asks for it.

    ValueError for a name that is taken.
    """
    with FAMILIES.added(*families), checker.PROPERTIES.added(*families):
        yield
