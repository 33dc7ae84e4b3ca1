"""Which pieces compute a graph in the least time: a covering problem, solved with CP-SAT.

A chosen piece needs each of its inputs from another one, or from the graph's inputs; outputs of the graph are needed
from the start. Nothing says that a node is computed only once: where a value is cheap, two pieces may compute it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from wsopt.solve.worker import has_solution, solved

_UNITS = 1000
"""Units of time in a microsecond."""
_LIMIT = 4.0
"""Deterministic time of a model. One that takes longer has hundreds of covers of nearly the same time, as a sum of
nine products has, and what it finds later is hardly better than what parts of it chosen anew find.
"""
_ANEW, _LIMIT_ANEW = 8, 0.25
"""Options of such a cover that are chosen anew at a time, neighbours in its order, and deterministic time for it."""


@dataclass(frozen=True, slots=True)
class Option:
    """What may be chosen: it makes some tensors of others, by name, and takes so many microseconds; infinitely many
    if it cannot be had after all.
    """

    makes: frozenset[str]
    needs: frozenset[str]
    microseconds: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options of a cover, by number, in an order in which they can run, and whether it is proved the fastest."""

    options: tuple[int, ...]
    proved: bool


def coverable(options: Sequence[Option], wanted: frozenset[str]) -> bool:
    """Whether any options make what is `wanted`: nothing is solved for that, for taking all of them would do."""
    made, left = set[str](), [option for option in options if option.microseconds < math.inf]
    while True:
        ready = [option for option in left if option.needs <= made]
        if not ready:
            return wanted <= made
        left = [option for option in left if not option.needs <= made]
        made.update(*(option.makes for option in ready))


def cover(options: Sequence[Option], wanted: frozenset[str]) -> Chosen | None:
    """The options that make what is `wanted` in the least time, of those the fewest; None if none do."""
    numbers = undominated(options)
    options = [options[number] for number in numbers]
    clauses: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    while True:
        found = _cover(options, wanted, clauses)
        if found is None:
            return None
        order, waiting = running_order(options, found.options)
        if not waiting:
            if not found.proved:
                order = _improved(options, wanted, order)
            return Chosen(tuple(numbers[number] for number in order), found.proved)
        clauses.append((waiting, _others(options, order, waiting)))


def _improved(options: Sequence[Option], wanted: frozenset[str], order: tuple[int, ...]) -> tuple[int, ...]:
    """A cover that takes no more time than one in its running order: some neighbours at a time are chosen anew
    beside all others, as long as that gains.
    """
    begin = 0
    while begin < len(order):
        kept = (*order[:begin], *order[begin + _ANEW :])
        found = _cover(options, wanted, (), kept, _LIMIT_ANEW)
        again, waiting = running_order(options, found.options if found else order)
        if not waiting and _cost(options, again) < _cost(options, order):
            order, begin = again, max(0, begin - _ANEW)
        else:
            begin += _ANEW // 2
    return order


def undominated(options: Sequence[Option]) -> tuple[int, ...]:
    """The options that can be had, by number, without those in whose place another one does: it makes what they make,
    needs no more, and takes no longer. Of two that are equal the first stays.
    """

    def order(number: int) -> tuple[float, int, int, int]:
        option = options[number]
        return option.microseconds, -len(option.makes), len(option.needs), number

    kept, making = list[int](), dict[str, list[Option]]()
    for number in sorted(range(len(options)), key=order):
        option = options[number]
        alike = making.get(min(option.makes), []) if option.makes else []
        if option.microseconds == math.inf or any(
            other.makes >= option.makes and other.needs <= option.needs for other in alike
        ):
            continue
        kept.append(number)
        for tensor in option.makes:
            making.setdefault(tensor, []).append(option)
    return tuple(sorted(kept))


def running_order(
    options: Sequence[Option], chosen: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The chosen options in an order in which each finds what it needs, and those that wait for each other."""
    made: set[str] = set()
    order, waiting = list[int](), list(chosen)
    while (ready := next((n for n in waiting if options[n].needs <= made), None)) is not None:
        made |= options[ready].makes
        order.append(ready)
        waiting.remove(ready)
    return tuple(order), tuple(waiting)


def _others(options: Sequence[Option], order: Sequence[int], waiting: Sequence[int]) -> tuple[int, ...]:
    """Options beside those that wait, which make something that these wait for: with none of them they never run."""
    made = frozenset(tensor for number in order for tensor in options[number].makes)
    missing = frozenset(tensor for number in waiting for tensor in options[number].needs) - made
    return tuple(n for n, option in enumerate(options) if n not in waiting and option.makes & missing)


def _cover(
    options: Sequence[Option],
    wanted: frozenset[str],
    clauses: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    kept: Sequence[int] = (),
    limit: float = _LIMIT,
) -> Chosen | None:
    """The options of the least cost that make what is `wanted`, those that are `kept` among them."""
    model = cp_model.CpModel()
    taken = [model.new_bool_var(f"option_{number}") for number in range(len(options))]
    making: dict[str, list[cp_model.IntVar]] = {}
    for option, variable in zip(options, taken, strict=True):
        for tensor in option.makes:
            making.setdefault(tensor, []).append(variable)
    for tensor in sorted(wanted):
        model.add_bool_or(making.get(tensor, []))
    for option, variable in zip(options, taken, strict=True):
        for tensor in sorted(option.needs):
            model.add_bool_or([*making.get(tensor, []), variable.negated()])
    for waiting, others in clauses:  # those that wait for each other want one of the others beside them
        model.add_bool_or([*(taken[n].negated() for n in waiting), *(taken[n] for n in others)])
    for number in kept:
        model.add(taken[number] == 1)
    costs = (_cost(options, [number]) for number in range(len(options)))
    total = [cost * variable for cost, variable in zip(costs, taken, strict=True)]
    model.minimize(sum(total))
    solver, status = solved(model, limit)
    if not has_solution(status):
        return None
    chosen = tuple(number for number, one in enumerate(taken) if solver.value(one))
    return Chosen(chosen, status == cp_model.OPTIMAL)


def _cost(options: Sequence[Option], chosen: Sequence[int]) -> int:
    """What options cost: their time in units, of which each is more than all of them by number, and their number."""
    return sum(1 + round(options[number].microseconds * _UNITS) * (len(options) + 1) for number in chosen)
