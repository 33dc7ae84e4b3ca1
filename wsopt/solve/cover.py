"""The fewest losses that a few kernels can have over all extents: a covering problem, solved with CP-SAT.

First the least worst loss, then the least mean loss among choices with that, then the fewest switches among those.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

from wsopt.errors import InfeasibleError
from wsopt.solve.worker import has_solution, is_feasible, solved

_WEIGHT_UNITS = 10_000
_LOSS_UNITS = 10_000
_EQUAL = 0.0025
"""Losses that differ by less count as equal in the mean, and smaller ones as none: the model errs by more."""
_LIMIT = 2.0
"""Deterministic time of each model."""


@dataclass(frozen=True, slots=True)
class Losses:
    """`loss[kernel][cell]` as a share of the best time of the cell, infinite where a kernel does not run; the cells'
    `weights` in the mean, and which are `neighbours`. Kernels of different `kinds` do not go together.
    """

    loss: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    neighbours: tuple[tuple[int, int], ...]
    kinds: tuple[Hashable, ...]

    @property
    def cells(self) -> range:
        """The cells, by number."""
        return range(len(self.weights))

    @property
    def kernels(self) -> range:
        """The kernels, by number."""
        return range(len(self.loss))


@dataclass(frozen=True, slots=True)
class Cover:
    """The kernel that serves each cell, the worst and the mean loss, switches between neighbours, and what is proved:
    the worst loss, the mean among choices with that one, the switches among those.
    """

    serves: tuple[int, ...]
    worst: float
    mean: float
    switches: int
    proved: tuple[bool, bool, bool]

    @property
    def chosen(self) -> tuple[int, ...]:
        """The kernels that serve a cell, by number."""
        return tuple(sorted(set(self.serves)))


def cover(losses: Losses, most: int) -> Cover:
    """The best choice of at most so many kernels. Raises InfeasibleError where some cell has none."""
    worst, first, proved_worst = _least_worst(losses, most)
    worst = max(worst, _EQUAL)  # smaller losses are none
    chosen, proved_mean = _least_mean(losses, most, worst, first)
    serves, proved_switches = _fewest_switches(losses, chosen, worst)
    total = math.fsum(losses.weights)
    mean = math.fsum(losses.loss[k][c] * losses.weights[c] for c, k in enumerate(serves)) / total
    switches = sum(serves[a] != serves[b] for a, b in losses.neighbours)
    proved = (proved_worst, proved_worst and proved_mean, proved_worst and proved_mean and proved_switches)
    return Cover(serves, max(losses.loss[k][c] for c, k in enumerate(serves)), mean, switches, proved)


def covering(losses: Losses, most: int) -> tuple[int, ...]:
    """Kernels, at most so many, that have the least worst loss, whatever their mean. Raises as `cover`."""
    return _least_worst(losses, most)[1]


def _least_worst(losses: Losses, most: int) -> tuple[float, tuple[int, ...], bool]:
    """The least worst loss of at most so many kernels, kernels that have it, and whether less is proved impossible:
    the least threshold at which all cells can be covered.
    """
    values = sorted({one for row in losses.loss for one in row if one < math.inf})
    uncovered = [c for c in losses.cells if all(row[c] == math.inf for row in losses.loss)]
    if uncovered or not values:
        raise InfeasibleError("some extents have no kernel at all")
    low, high, proved = 0, len(values) - 1, True
    best = _covering(losses, most, values[high])
    if not best:
        raise InfeasibleError(_too_few(losses, most))
    while low < high:
        middle = (low + high) // 2
        found = _covering(losses, most, values[middle])
        proved = proved and found is not None
        best = found or best
        low, high = (low, middle) if found else (middle + 1, high)
    return values[high], best, proved


def _too_few(losses: Losses, most: int) -> str:
    """Why so many kernels are not enough, and how many are."""
    model = cp_model.CpModel()
    used = _choice(model, losses, len(losses.loss))
    every = (tuple(k for k in losses.kernels if losses.loss[k][c] < math.inf) for c in losses.cells)
    for able in dict.fromkeys(every):
        model.add_bool_or([used[k] for k in able])
    model.minimize(sum(used))
    solver, status = solved(model, _LIMIT)
    if not has_solution(status):
        return "no kernels of one kind run at all extents of the range: ask for a narrower one"
    needed = sum(solver.value(one) for one in used)
    return (
        f"it takes {needed} kernels to run at all extents of the range, and at most {most} were asked for: "
        f"ask for them with --kernels {needed}, or for a narrower range"
    )


def _covering(losses: Losses, most: int, threshold: float) -> tuple[int, ...] | None:
    """At most `most` kernels of which one has at most the `threshold` as its loss in every cell; empty if there are
    none, None if undecided.
    """
    model = cp_model.CpModel()
    used = _choice(model, losses, most)
    # Cells that the same kernels may serve ask for one thing.
    every = (tuple(k for k in losses.kernels if losses.loss[k][c] <= threshold) for c in losses.cells)
    for able in dict.fromkeys(every):
        model.add_bool_or([used[k] for k in able])
    solver, status = solved(model, _LIMIT)
    if has_solution(status):
        return tuple(k for k in losses.kernels if solver.value(used[k]))
    return None if is_feasible(status) is None else ()


def _choice(model: cp_model.CpModel, losses: Losses, most: int) -> list[cp_model.IntVar]:
    """A variable for each kernel, whether it is one of those chosen: at most `most`, all of one kind."""
    used = [model.new_bool_var(f"used_{k}") for k in losses.kernels]
    model.add(sum(used) <= most)
    kinds = list(dict.fromkeys(losses.kinds))
    if len(kinds) > 1:
        of_kind = {kind: model.new_bool_var(f"kind_{number}") for number, kind in enumerate(kinds)}
        model.add_exactly_one(of_kind.values())
        for k in losses.kernels:
            model.add_implication(used[k], of_kind[losses.kinds[k]])
    return used


def _steps(loss: float) -> int:
    """A loss in the units in which losses are equal."""
    return math.floor(loss / _EQUAL)


def _least_mean(
    losses: Losses, most: int, worst: float, first: Sequence[int]
) -> tuple[tuple[int, ...], bool]:
    """The kernels with the least mean loss of those whose worst one is the least; else the `first` ones.

    A cell's loss is a sum of steps: from each that some kernel has there to the next larger one, unless one is chosen
    that has no more (Cornuejols, Nemhauser and Wolsey, SIAM J. Algebraic and Discrete Methods 1, 1980). With a
    variable for each kernel and cell instead, thirty kernels of 210 cells took 24 s to prove, and with these 0.1.
    """
    model = cp_model.CpModel()
    used, total = _choice(model, losses, most), list[cp_model.LinearExprT]()
    alike: dict[tuple[int | None, ...], float] = {}
    for c in losses.cells:
        column = tuple(_steps(row[c]) if row[c] <= worst else None for row in losses.loss)
        alike[column] = alike.get(column, 0.0) + losses.weights[c]
    whole = math.fsum(losses.weights)
    for number, (column, weight) in enumerate(alike.items()):
        units = max(1, round(weight / whole * _WEIGHT_UNITS))
        losses_there = sorted({loss for loss in column if loss is not None})
        total += [units * losses_there[0]]
        model.add_bool_or([used[k] for k in losses.kernels if column[k] is not None])
        for below, above in pairwise(losses_there):
            more = model.new_bool_var(f"more_{number}_{below}")
            total.append(units * (above - below) * more)
            able = (k for k in losses.kernels if (loss := column[k]) is not None and loss <= below)
            model.add_bool_or([more, *(used[k] for k in able)])
    # Among equals fewer kernels.
    model.minimize(len(losses.loss) * sum(total) + sum(used))
    for k in losses.kernels:
        model.add_hint(used[k], k in first)
    solver, status = solved(model, _LIMIT)
    if not has_solution(status):
        return tuple(first), False
    return tuple(k for k in losses.kernels if solver.value(used[k])), status == cp_model.OPTIMAL


def _fewest_switches(losses: Losses, chosen: Sequence[int], worst: float) -> tuple[tuple[int, ...], bool]:
    """The kernel of each cell: of those with the least loss there, as few changes between neighbours as can be."""
    model = cp_model.CpModel()
    serves: list[dict[int, cp_model.IntVar]] = []
    for c in losses.cells:
        steps = {k: _steps(losses.loss[k][c]) for k in chosen if losses.loss[k][c] <= worst}
        able = [k for k, units in steps.items() if units == min(steps.values())]
        serves.append({k: model.new_bool_var(f"serves_{c}_{k}") for k in able})
        model.add_exactly_one(serves[-1].values())
    changes = []
    for a, b in losses.neighbours:
        same = [k for k in serves[a] if k in serves[b]]
        changed = model.new_bool_var(f"changed_{a}_{b}")
        changes.append(changed)
        if not same:
            model.add(changed == 1)
        for k in serves[a]:
            there = serves[b].get(k)
            model.add_bool_or([serves[a][k].negated(), changed, *([there] if there is not None else [])])
    fine = [
        round(min(losses.loss[k][c], 1e3) * _LOSS_UNITS) * one
        for c, options in enumerate(serves)
        for k, one in options.items()
    ]
    # Of as few switches the assignment with the least loss, to the last digit.
    most = 1 + sum(round(_EQUAL * _LOSS_UNITS) + 1 for _ in serves)
    model.minimize(most * sum(changes) + sum(fine))
    solver, status = solved(model, _LIMIT)
    if not has_solution(status):
        best = (min(options, key=lambda k: losses.loss[k][c]) for c, options in enumerate(serves))
        return tuple(best), False
    found = tuple(next(k for k, one in options.items() if solver.value(one)) for options in serves)
    return found, status == cp_model.OPTIMAL
