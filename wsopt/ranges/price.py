"""What a kernel takes at other extents than those that its schedule was found at: the formula, there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from wsopt.emit.recipe import Recipe
from wsopt.emit.recipe_of import launch_recipe
from wsopt.emit.source import emit
from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.symbolic import SymbolicGraph, bound, said
from wsopt.graph.types import Graph
from wsopt.lowering.lower import Cuttable
from wsopt.lowering.refused import problems
from wsopt.machine.types import Machine
from wsopt.perf import timing
from wsopt.perf.effective_ii import effective_ii
from wsopt.perf.price import lower
from wsopt.program.program import TileProgram
from wsopt.program.types import Structure
from wsopt.ranges.accepts import refusal
from wsopt.ranges.alike import digest
from wsopt.ranges.points import Point
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.types import Schedule
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.bound import promotion, recurrence, unit_load


@dataclass(frozen=True, slots=True)
class Key:
    """What tells kernels apart: a schedule, and the text, which may say more of the extents, such as how many axes
    their tensors have.
    """

    schedule: Schedule
    text: str

    @property
    def structure(self) -> Structure:
        """The structure of the kernel."""
        return self.schedule.structure


@dataclass(frozen=True)
class Kernel:
    """A structure with its schedule, and the extents `home` at which a search found it, with its certificate."""

    home: Point
    verified: VerifiedSchedule
    certificate: Certificate

    @property
    def schedule(self) -> Schedule:
        """The schedule of the kernel."""
        return self.verified.schedule

    @cached_property
    def key(self) -> Key:
        """Equal for schedules that give one kernel: without what is said of the time at home."""
        first = self.schedule.prediction
        nothing = replace(first, **dict.fromkeys(_FIGURES, 0.0), waves=0, bound_by="")
        return Key(replace(self.schedule, prediction=nothing, ii=0), digest(self.source))

    @cached_property
    def source(self) -> str:
        """The text of kernel.py."""
        return emit(self.verified)

    @cached_property
    def recipe(self) -> Recipe:
        """All that a launch of the kernel needs."""
        return launch_recipe(self.verified)

    @cached_property
    def bounded(self) -> bool:
        """Whether at home units and rings keep the loop from a smaller II: then elsewhere they say what it is."""
        return self.schedule.ii <= _interval(self.verified.program, self.verified.machine, self.schedule)


_FIGURES = (
    "start", "fill", "main", "epilogue", "tail", "power", "cycles", "sm_us", "dram_us", "l2_us", "roofline_us",
    "microseconds",
)  # fmt: skip


@dataclass(slots=True)
class Extents:
    """The graph at extents of its dimensions, with its region, each made once."""

    symbolic: SymbolicGraph
    machine: Machine
    _graphs: dict[Point, Graph] = field(default_factory=dict)
    _regions: dict[Point, Cuttable] = field(default_factory=dict)
    _lowered: dict[Point, Point] = field(default_factory=dict)

    def values(self, point: Point) -> dict[str, int]:
        """The dimensions by name."""
        return {dim.name: extent for dim, extent in zip(self.symbolic.dims, point, strict=True)}

    def graph(self, point: Point) -> Graph:
        """The graph of numbers at these extents."""
        if point not in self._graphs:
            self._graphs[point] = bound(self.symbolic, self.values(point))
        return self._graphs[point]

    def region(self, point: Point) -> Cuttable:
        """The region at these extents. LoweringError, with the extents, where there is none."""
        return self._region(self.lowered(point))

    def lowered(self, point: Point) -> Point:
        """The extents whose region stands for these: two for one, where a kernel can be made only so. Of one element
        a tensor that repeats along a dimension cannot be told from one that has it.
        """
        if point not in self._lowered:
            pairs = zip(self.symbolic.dims, point, strict=True)
            longer = tuple(min(max(extent, 2), dim.most) for dim, extent in pairs)
            self._lowered[point] = longer if self._refused(point) and not self._refused(longer) else point
        return self._lowered[point]

    def _refused(self, point: Point) -> bool:
        """Whether no kernel takes the graph at these extents."""
        try:
            return any(problems(self._region(point), self.machine))
        except LoweringError:
            return True

    def _region(self, point: Point) -> Cuttable:
        if point not in self._regions:
            try:
                self._regions[point] = find_region(self.graph(point))
            except LoweringError as error:
                raise LoweringError(f"with {said(self.values(point))}: {error}") from error
        return self._regions[point]

    def program(self, kernel: Kernel, point: Point) -> TileProgram:
        """The tile program of the kernel's structure at these extents."""
        program = lower(self.region(point), kernel.schedule.structure, self.machine)
        return replace(program, conditions=kernel.verified.program.conditions)

    def runs(self, kernel: Kernel, point: Point) -> bool:
        """Whether the kernel takes a call with these extents."""
        return self.refusal(kernel, point) is None

    def refusal(self, kernel: Kernel, point: Point) -> str | None:
        """What the kernel says to a call with these extents; None where it takes it."""
        return refusal(kernel.recipe, self.graph(point), self.machine.sm_count)

    def microseconds(self, kernel: Kernel, point: Point) -> float:
        """The predicted time of the kernel at these extents; infinite where it does not take them."""
        if point == kernel.home:
            return kernel.schedule.prediction.microseconds
        if not self.runs(kernel, point):
            return math.inf
        schedule, program = kernel.schedule, self.program(kernel, point)
        ii = _interval(program, self.machine, schedule)
        ii = ii if kernel.bounded else max(ii, schedule.ii)
        slots = [depth for _, depth in schedule.rings]
        return timing.predict(program, self.machine, ii, schedule.buffers, slots).microseconds


def _interval(program: TileProgram, machine: Machine, schedule: Schedule) -> int:
    """The least II by units, recurrences, and the rings as they are: that of a schedule which nothing else holds."""
    rings: Sequence[int] = [effective_ii(program, machine, depth) for _, depth in schedule.rings[:1]]
    least = max(unit_load(program), recurrence(program), promotion(program), *rings, 0)
    return math.ceil(least / program.grain) * program.grain
