"""Parts of a tile whose loop computes values: what each leaves, and how the last to arrive brings them together.

A part leaves its consumer's sums, and behind them in its place of the workspace a stretch for each value of a row.
Whoever arrives last takes some rows at a time, few enough that the loads of many parts are under way together, and
leaves their results in the first part's place; from there the epilogue has them as it would from its own loop.
Rows beyond the tensor's end are neither stored nor loaded: where queries are few nearly all are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wsopt.emit import text
from wsopt.emit.arithmetic import Arithmetic
from wsopt.emit.called import LARGER
from wsopt.emit.expressions import Operand
from wsopt.emit.instructions import write
from wsopt.emit.plan import KernelPlan
from wsopt.emit.scope import ROW
from wsopt.emit.sums import Accumulator, accumulator_names, accumulators
from wsopt.graph.types import DType
from wsopt.perf.splits import parts_at_once, rows_at_once
from wsopt.program.combination import Combination
from wsopt.tensors.statements import BEFORE
from wsopt.tensors.views import FULL

_LEAST = 'float("-inf")'
_VECTOR = 4
"""Elements of f32 that a thread loads at a time, 16 bytes."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Writes what a kernel of this `plan` does with the parts of its tiles; `together` says how they are combined."""

    plan: KernelPlan
    together: Combination

    @property
    def parameters(self) -> tuple[str, ...]:
        """Parameters of the function that brings all parts of a tile together."""
        return ("first_part", *(["parts"] if self.plan.s.shares else []), "row", "row_extent")

    @property
    def count(self) -> str:
        """How many parts a tile has."""
        return "parts" if self.plan.s.shares else "SPLITS"

    # --- places -----------------------------------------------------------------------------------------

    def rows_first(self, name: str) -> int:
        """Elements before a row value's stretch in a consumer's place."""
        s = self.plan.s
        sums = len(self.together.products) * s.rows * s.columns
        return sums + self.together.rows.index(name) * s.rows

    def sums_first(self, product: int, low: int) -> str:
        """Elements before a product's sums from a subtile on, as the text adds them."""
        s = self.plan.s
        before = s.rows * (product * s.columns + low * s.subtile_columns)
        return f" + {before}" if before else ""

    # --- a part -----------------------------------------------------------------------------------------

    def stores(self) -> Iterator[str]:
        """The lines that leave a part's results at `own_part`."""
        plan, layout = self.plan, self.plan.loop_layout
        for number, (name, _) in enumerate(self.together.products):
            names = accumulator_names(plan.s, plan.value(name))
            for sums, one in zip(names, accumulators(plan.s), strict=True):
                place = f"places_of(own_part{self.sums_first(number, one.low)}, {one.columns}, {one.layout})"
                yield f"gl.store({place}, {sums}, mask=inside_of(row, row_extent, {one.columns}, {one.layout}))"
        for name in self.together.rows:
            value = plan.value(name)
            if name in plan.program.lane_sums:
                value = f"gl.convert_layout(gl.sum({value}, axis=1), gl.SliceLayout(1, {layout}))"
            yield f"gl.store(rows_of(own_part + {self.rows_first(name)}, {layout}), {value})"

    def sums(self, names: Iterable[str], subtile: int) -> Iterator[str]:
        """The lines that load the sums of an epilogue subtile, one for each product."""
        for number, name in enumerate(names):
            place = (
                f"places_of(first_part{self.sums_first(number, subtile)}, SUBTILE_COLUMNS, SUBTILE_LAYOUT)"
            )
            inside = "inside_of(row, row_extent, SUBTILE_COLUMNS, SUBTILE_LAYOUT)"
            yield f"{name} = gl.load({place}, mask={inside}, other=0.0)"

    def rows(self) -> dict[str, str]:
        """The loads of the row values that the epilogue reads, by the values' names."""
        wanted = (item.name for item in self.plan.rows)
        return {
            self.plan.value(name): f"gl.load(rows_of(first_part + {self.rows_first(name)}, SUBTILE_LAYOUT))"
            for name in wanted
        }

    # --- all parts --------------------------------------------------------------------------------------

    def layouts(self) -> Iterator[tuple[str, str, str]]:
        """The layouts of some rows of an accumulator while parts come together: columns over a warp's threads."""
        s, machine = self.plan.s, self.plan.verified.machine
        for one in accumulators(s):
            columns = s.columns if one.columns == "TILE_COLUMNS" else int(one.columns)
            across = min(machine.threads_per_warp, columns // _VECTOR)
            down = machine.threads_per_warp // across
            shape = f"[1, {_VECTOR}], [{down}, {across}], [{s.consumer_warps}, 1], [1, 0]"
            yield _layout(one), f"gl.BlockedLayout({shape})", "some rows, while parts come together"

    def constants(self) -> list[tuple[str, int | str, str]]:
        """Constants that the text names."""
        return [
            (
                "COMBINED_ROWS",
                rows_at_once(self.plan.program, self.plan.verified.machine),
                "rows that are combined at a time",
            ),
            *self.layouts(),
        ]

    def body(self) -> tuple[str, frozenset[str]]:
        """The lines of `combine`, which leaves the results of all parts of a consumer's tile in the first part's
        place, and what they call of the kernel's own functions.
        """
        writer = self._writer()
        lines = [line for one in accumulators(self.plan.s) for line in self._accumulator(one, writer)]
        return write([*lines, "thread_barrier()"]), frozenset(writer.called)

    def _accumulator(self, one: Accumulator, writer: Arithmetic) -> list[str]:
        """Lines for the columns of one accumulator, and with the last one's for the values of rows, by which all are
        rescaled.
        """
        layout, last = _layout(one), one.high == self.plan.s.subtiles
        body = [
            f"rows = begin + gl.arange(0, COMBINED_ROWS, layout=gl.SliceLayout(1, {layout}))",
            "inside = row + rows < row_extent",
            f"places = places_in(rows, {one.columns}, {layout})",
            *self._maxima(layout, writer),
            *self._starts(one, layout, rows=last),
            self._each(self._added(one, writer, rows=last)),
            "thread_barrier()  # all have read the first part",
            *self._results(one, rows=last),
        ]
        count = "gl.minimum(CONSUMER_ROWS, row_extent - row)"
        return [f"for begin in range(0, {count}, COMBINED_ROWS):", text.block(write(body))]

    @property
    def _at_once(self) -> int:
        """Parts whose loads are under way together."""
        return parts_at_once(self.plan.program, self.plan.verified.machine)

    def _each(self, lines: Iterable[str]) -> str:
        """Lines for each part: so many at a time that their loads fit the registers."""
        splits, at_once = self.plan.s.splits, self._at_once
        if at_once >= splits and not self.plan.s.shares:
            return "for part in gl.static_range(SPLITS):\n" + text.block(write(lines))
        inner = ["part = before + number", *lines]
        loop = f"for number in gl.static_range({at_once}):\n" + text.block(write(inner))
        return f"for before in range(0, {self.count}, {at_once}):\n" + text.block(loop)

    def _row_load(self, name: str, other: str) -> str:
        return f"gl.load(one_part + ({self.rows_first(name)} + rows), mask={self._inside()}, other={other})"

    def _inside(self) -> str:
        ragged = self.plan.s.shares or self.plan.s.splits % self._at_once
        return f"inside & (part < {self.count})" if ragged else "inside"

    def _one_part(self) -> str:
        stride = "(CONSUMERS * PARTIAL_SUMS)" if self.plan.s.at_once > 1 else "PARTIAL_SUMS"
        return f"one_part = first_part + part * {stride}"

    def _maxima(self, layout: str, writer: Arithmetic) -> Iterator[str]:
        """The largest maximum of all parts, for each row."""
        if not self.together.maxima:
            return
        for name in self.together.maxima:
            start = f"gl.full([COMBINED_ROWS], {_LEAST}, gl.float32, gl.SliceLayout(1, {layout}))"
            yield f"{self._all(name)} = {start}"
        larger = {
            name: LARGER if name in self.together.keep_nan else "gl.maximum" for name in self.together.maxima
        }
        writer.called |= {LARGER, "tl"} if self.together.keep_nan else set()
        lines = (
            f"{self._all(name)} = {function}({self._all(name)}, {self._row_load(name, _LEAST)})"
            for name, function in larger.items()
        )
        yield self._each([self._one_part(), *lines])

    def _starts(self, one: Accumulator, layout: str, *, rows: bool) -> Iterator[str]:
        for name, _ in self.together.sums if rows else ():
            yield f"{self._all(name)} = gl.zeros([COMBINED_ROWS], gl.float32, gl.SliceLayout(1, {layout}))"
        for name, _ in self.together.products:
            yield f"{self._all(name)} = gl.zeros([COMBINED_ROWS, {one.columns}], gl.float32, {layout})"

    def _added(self, one: Accumulator, writer: Arithmetic, *, rows: bool) -> Iterator[str]:
        """Lines that add one part's sums, rescaled from its own maxima to the largest ones."""
        yield self._one_part()
        for name in self.together.maxima if self.together.statements else ():
            yield f"{self._own(name)} = {self._row_load(name, _LEAST)}"
        yield from writer.phase(tuple(i.name for i in self.together.statements), lambda _: 0, masked=True)
        for name, factor in self.together.sums if rows else ():
            times = f" * {writer.operand(factor).name}" if factor else ""
            yield f"{self._all(name)} += {self._row_load(name, '0.0')}{times}"
        for number, (name, factor) in enumerate(self.together.products):
            place = f"one_part{self.sums_first(number, one.low)} + places"
            load = f"gl.load({place}, mask=gl.expand_dims({self._inside()}, 1), other=0.0)"
            times = f" * gl.expand_dims({writer.operand(factor).name}, 1)" if factor else ""
            yield f"{self._all(name)} += {load}{times}"

    def _writer(self) -> Arithmetic:
        """Writes the factors of a part; its own maxima are those before, the largest ones those of the K-block."""
        known = {name: Operand(self._all(name), ROW, DType.F32) for name in self.together.maxima}
        known |= {name + BEFORE: Operand(self._own(name), ROW, DType.F32) for name in self.together.maxima}
        factors = {factor for _, factor in (*self.together.sums, *self.together.products) if factor}
        return Arithmetic(
            items=self.together.statements, s=self.plan.s, name=lambda name, _: self._own(name), sources=known,
            tile=FULL, layout="COMBINED_LAYOUT", asynchronous=False, wanted=frozenset(factors), carried=False,
        )  # fmt: skip

    def _results(self, one: Accumulator, *, rows: bool) -> Iterator[str]:
        """Lines that leave the results in the first part's place, of rows those that the epilogue reads."""
        for name in (item.name for item in self.plan.rows) if rows else ():
            yield f"gl.store(first_part + ({self.rows_first(name)} + rows), {self._all(name)}, mask=inside)"
        for number, (name, _) in enumerate(self.together.products):
            place = f"first_part{self.sums_first(number, one.low)} + places"
            yield f"gl.store({place}, {self._all(name)}, mask=gl.expand_dims(inside, 1))"

    def _all(self, name: str) -> str:
        """The identifier of the result of all parts."""
        return self.plan.names(f"all:{name}", f"{self.plan.value(name)}_all")

    def _own(self, name: str) -> str:
        """The identifier of a part's value."""
        return self.plan.names(f"part:{name}", f"{self.plan.value(name)}_part")


def _layout(one: Accumulator) -> str:
    """The constant with the layout of some rows of an accumulator."""
    return "COMBINED_LAYOUT" if one.columns == "TILE_COLUMNS" else f"COMBINED_LAYOUT_{one.columns}"


def parts_of(plan: KernelPlan) -> Parts | None:
    """What a plan does with the parts of its tiles; None where they are not parts of a loop that computes values."""
    together = plan.combination
    return None if together is None else Parts(plan, together)
