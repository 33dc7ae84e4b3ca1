"""Single mistakes made in a good kernel: the proof that the interpreter would see them.

Each mutant removes, doubles, shifts or misplaces one piece of synchronization (or one role, slot or copy)
of an emitted kernel. Most change what the kernel means on some interleaving; those that cannot are for
the reader of the list to name.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from wsopt.interpret.mutate_lazy import LAZY_RULES
from wsopt.interpret.mutate_over_rows import OVER_ROWS_RULES
from wsopt.interpret.mutate_pages import PAGE_RULES
from wsopt.interpret.mutate_pairs import PAIR_RULES
from wsopt.interpret.mutate_ranges import RANGE_RULES
from wsopt.interpret.mutate_retained import RETAINED_RULES
from wsopt.interpret.mutate_segments import SEGMENT_RULES
from wsopt.interpret.mutate_shares import SHARE_RULES
from wsopt.interpret.mutate_splits import BARRIERS, SPLIT_RULES
from wsopt.interpret.splice import (
    Change,
    Edit,
    Rule,
    Source,
    argument,
    bodies,
    callee,
    calls,
    nodes,
    statements,
)

LOADS = ("tma_load", "tma.async_load", "tma.async_copy_global_to_shared")
STORES = ("tma_store", "tma.async_store", "tma.async_copy_shared_to_global")
WAIT, ARRIVE, EXPECT, COMMIT = "mbarrier.wait", "mbarrier.arrive", "mbarrier.expect", "tcgen05_commit"
PRODUCTS = ("warpgroup_mma", "tcgen05_mma")
ALLOCATIONS = ("gl.allocate_shared_memory", "allocate_tensor_memory")
SYNCHRONIZATION = (
    *(WAIT, ARRIVE, EXPECT, COMMIT),
    *("fence_async_shared", "tma.store_wait", "gdc_wait", *BARRIERS),
)
REMOVABLE = (*SYNCHRONIZATION, "gl.store", "tcgen05_mma", *LOADS, *STORES)
DOUBLED = (WAIT, ARRIVE, EXPECT, COMMIT)
SLOTTED = (WAIT, ARRIVE, EXPECT, COMMIT, *PRODUCTS, "epilogue", "load", *LOADS, *STORES)
WORDS = (
    dict.fromkeys(LOADS, "load")
    | dict.fromkeys(STORES, "store")
    | dict.fromkeys(PRODUCTS, "mma")
    | {"gl.store": "row-store", "load": "tile-load", COMMIT: "commit"}
)


@dataclass(frozen=True)
class Mutant:
    """A kernel with one mistake: a readable name `kind@line`, the line, what was done, the source."""

    name: str
    line: int
    description: str
    source: str

    @property
    def kind(self) -> str:
        """The name without its line."""
        return self.name.partition("@")[0]


@dataclass(frozen=True, order=True)
class Place:
    """Place of a statement, independent of line numbers: its function, its text, and its occurrence."""

    function: str
    statement: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.function}: {self.statement} ({self.occurrence})"


def mutants(source: str) -> Iterator[Mutant]:
    """Yield every single mutation of an emitted kernel, in the order of the rules and of the lines."""
    return _made(Source(source), _RULES)


def deletions(source: str) -> Iterator[tuple[Place, Mutant]]:
    """Yield the kernel with one wait, arrival, expectation or fence less, for each of them, by line.

    `gdc_launch_dependents` stays: nothing is ordered by it, for the next kernel waits for the end of this one.
    """
    text = Source(source)
    found = sorted(_made(text, (_synchronization_removed, _mma_wait_removed)), key=lambda m: m.line)
    seen: Counter[tuple[str, str]] = Counter()
    lines = source.splitlines()
    for mutant in found:
        function, statement = text.function_at(mutant.line), lines[mutant.line - 1].strip()
        seen[function, statement] += 1
        yield Place(function, statement, seen[function, statement]), mutant


def _made(text: Source, rules: Iterable[Rule]) -> Iterator[Mutant]:
    seen: Counter[str] = Counter()
    for rule in rules:
        for change in rule(text):
            name = f"{change.kind}@{change.line}"
            seen[name] += 1
            if seen[name] > 1:
                name = f"{name}#{seen[name]}"
            yield Mutant(name, change.line, change.description, text.edited(change.edits))


def _word(name: str) -> str:
    return WORDS.get(name, name.rpartition(".")[2].replace("_async_shared", ""))


def _removals(names: tuple[str, ...]) -> Rule:
    def rule(source: Source) -> Iterator[Change]:
        for node, name in statements(source, names):
            yield Change(f"drop-{_word(name)}", f"removed {source.text(node)}", (Edit(node, "pass"),))

    return rule


def _doubled(source: Source) -> Iterator[Change]:
    for node, name in statements(source, DOUBLED):
        text = source.text(node)
        yield Change(f"double-{_word(name)}", f"doubled {text}", (Edit(node, f"{text}; {text}"),))


def _mma_wait_removed(source: Source) -> Iterator[Change]:
    for call in calls(source, ("warpgroup_mma_wait",)):
        deps = argument(call, 1, "deps")
        if isinstance(deps, ast.Tuple):
            items = [source.text(item) for item in deps.elts]
            text = items[0] if len(items) == 1 else f"({', '.join(items)})"
            yield Change("drop-mma-wait", f"removed {source.text(call)}", (Edit(call, text),))


def _mma_wait_weakened(source: Source) -> Iterator[Change]:
    for call in calls(source, ("warpgroup_mma_wait",)):
        count = argument(call, 0, "num_outstanding")
        if count is not None:
            text = f"({source.text(count)}) + 1"
            yield Change("weaken-mma-wait", f"{source.text(call)} leaves one more", (Edit(count, text),))


def _phase_flipped(source: Source) -> Iterator[Change]:
    for call in calls(source, (WAIT,)):
        phase = argument(call, 1, "phase")
        if phase is not None:
            edit = Edit(phase, f"({source.text(phase)}) ^ 1")
            yield Change("flip-phase", f"other phase in {source.text(call)}", (edit,))


def _shifted(kind: str, names: tuple[str, ...], position: int, keyword: str, by: int) -> Rule:
    def rule(source: Source) -> Iterator[Change]:
        for call in calls(source, names):
            number = argument(call, position, keyword)
            if number is not None:
                for offset in (by, -by):
                    edit = Edit(number, f"({source.text(number)}) + ({offset})")
                    yield Change(f"{kind}{offset:+}", f"{offset:+} in {source.text(call)}", (edit,))

    return rule


def _store_wait_weakened(source: Source) -> Iterator[Change]:
    for call in calls(source, ("tma.store_wait",)):
        pending = argument(call, 0, "pendings")
        if pending is not None:
            edit = Edit(pending, f"({source.text(pending)}) + 1")
            yield Change("weaken-store-wait", f"one more store outstanding in {source.text(call)}", (edit,))


def _depth_shifted(source: Source) -> Iterator[Change]:
    for node in _ring_divisions(source):
        for offset in (1, -1):
            edit = Edit(node.right, f"({source.text(node.right)} + ({offset}))")
            yield Change(f"depth{offset:+}", f"depth {offset:+} in {source.text(node)}", (edit,))


def _ring_divisions(source: Source) -> Iterator[ast.BinOp]:
    """Every `% depth` and `// depth`: an allocation's constant, or a number in a slot or a phase."""
    depths = _depth_names(source)
    inside = {id(node) for call in calls(source, (WAIT, "index")) for node in ast.walk(call)}
    for kernel in source.kernels():
        for node in nodes(kernel):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod | ast.FloorDiv):
                continue
            named = isinstance(node.right, ast.Name) and node.right.id in depths
            if named or (isinstance(node.right, ast.Constant) and id(node) in inside):
                yield node


def _allocation_shrunk(source: Source) -> Iterator[Change]:
    for call in calls(source, ALLOCATIONS):
        shape = argument(call, 1, "shape")
        if isinstance(shape, ast.List | ast.Tuple) and shape.elts:
            edit = Edit(shape.elts[0], f"({source.text(shape.elts[0])}) - 1")
            yield Change("shrink-allocation", f"one slot less in {source.text(call)}", (edit,))


def _depth_names(source: Source) -> set[str]:
    """The constants that say how many slots an allocation has."""
    names: set[str] = set()
    for call in calls(source, ALLOCATIONS):
        shape = argument(call, 1, "shape")
        if isinstance(shape, ast.List | ast.Tuple) and shape.elts:
            names |= {node.id for node in ast.walk(shape.elts[0]) if isinstance(node, ast.Name)}
    return names


def _slot_shifted(source: Source) -> Iterator[Change]:
    for call in calls(source, SLOTTED):
        for node in ast.walk(call):
            if callee(node) == "index" and isinstance(node, ast.Call):
                edit = Edit(node.args[0], f"({source.text(node.args[0])}) + 1")
                kind = f"shift-slot-{_word(callee(call))}"
                yield Change(kind, f"next slot of {source.text(node)}", (edit,))


def _early_arrivals(source: Source) -> Iterator[Change]:
    """Release a slot before the product that read it has been waited for, or commit before it is issued."""
    for body in bodies(source):
        yield from _early_in(source, body)


def _early_in(source: Source, body: list[ast.stmt]) -> Iterator[Change]:
    waited: ast.stmt | None = None
    for statement in body:
        called = callee(getattr(statement, "value", statement))
        if called in ("warpgroup_mma_wait", "tcgen05_mma"):
            waited = statement
        elif called in (ARRIVE, COMMIT) and waited is not None:
            text = f"{source.text(statement)}; {source.text(waited)}"
            edits = (Edit(waited, text), Edit(statement, "pass"))
            yield Change("early-arrive", f"{source.text(statement)} before {source.text(waited)}", edits)


def _late_waits(source: Source) -> Iterator[Change]:
    """Wait for a barrier after the first access that it guards, which only a late arrival makes a wrong one."""
    for body in bodies(source):
        for index, statement in enumerate(body):
            if isinstance(statement, ast.Expr) and callee(statement.value) == WAIT:
                guarded = next((other for other in body[index + 1 :] if _accesses(other)), None)
                if guarded is not None:
                    text = f"{source.text(guarded)}; {source.text(statement)}"
                    edits = (Edit(statement, "pass"), Edit(guarded, text))
                    yield Change("late-wait", f"{source.text(statement)} after {source.text(guarded)}", edits)


def _early_releases(source: Source) -> Iterator[Change]:
    """Arrive before the last load, store, or end of a store that the arrival tells of."""
    for body in bodies(source):
        for index, statement in enumerate(body):
            if isinstance(statement, ast.Expr) and callee(statement.value) == ARRIVE:
                told = next(
                    (other for other in body[:index][::-1] if _accesses(other, "tma.store_wait")), None
                )
                if told is not None and callee(getattr(told, "value", told)) not in PRODUCTS:
                    text = f"{source.text(statement)}; {source.text(told)}"
                    edits = (Edit(told, text), Edit(statement, "pass"))
                    yield Change(
                        "early-release", f"{source.text(statement)} before {source.text(told)}", edits
                    )


def _accesses(statement: ast.stmt, *more: str) -> bool:
    """Does a statement of one line read or write shared memory, or start what does?"""
    if not isinstance(statement, ast.Expr | ast.Assign):
        return False
    names = {callee(node) for node in ast.walk(statement)}
    return bool(names & {*PRODUCTS, "epilogue", "load", "store", *LOADS, *STORES, *more})


def _roles_swapped(source: Source) -> Iterator[Change]:
    for first, second in _pairs(source):
        if source.text(first.elts[0]) != source.text(second.elts[0]):
            edits = (Edit(first, source.text(second)), Edit(second, source.text(first)))
            what = f"{source.text(first.elts[0])} and {source.text(second.elts[0])}"
            yield Change("swap-roles", f"{what} take each other's warps", edits)


def _indices_mixed(source: Source) -> Iterator[Change]:
    """Two partitions of one function: swap or equal one of the arguments in which they differ."""
    for first, second in _pairs(source):
        left, right = first.elts[1], second.elts[1]
        same = source.text(first.elts[0]) == source.text(second.elts[0])
        if not (same and isinstance(left, ast.Tuple) and isinstance(right, ast.Tuple)):
            continue
        for a, b in zip(left.elts, right.elts, strict=True):
            x, y = source.text(a), source.text(b)
            if x != y:
                yield Change("same-argument", f"{x} instead of {y}", (Edit(b, x),))
                yield Change("swap-argument", f"{x} and {y} exchanged", (Edit(a, y), Edit(b, x)))


def _pairs(source: Source) -> Iterator[tuple[ast.Tuple, ast.Tuple]]:
    for call in calls(source, ("gl.warp_specialize",)):
        if call.args and isinstance(call.args[0], ast.List):
            parts = [part for part in call.args[0].elts if isinstance(part, ast.Tuple)]
            yield from combinations(parts, 2)


def _accumulation_changed(source: Source) -> Iterator[Change]:
    """Accumulate always; and in tensor memory, where it is a flag of every product, never."""
    for call in calls(source, PRODUCTS):
        flag = argument(call, len(call.args), "use_acc")
        if flag is not None:
            yield Change("keep-accumulator", f"accumulates in {source.text(call)}", (Edit(flag, "True"),))
    for call in calls(source, ("tcgen05_mma",)):
        flag = argument(call, len(call.args), "use_acc")
        if flag is None:
            text = f"{source.text(call)[:-1]}, use_acc=False)"
            edit = Edit(call, text)
        elif source.text(flag) != "False":
            edit = Edit(flag, "False")
        else:
            continue
        yield Change("lose-accumulator", f"starts anew in {source.text(call)}", (edit,))


_synchronization_removed = _removals(SYNCHRONIZATION)
_RULES: tuple[Rule, ...] = (
    _removals(REMOVABLE),
    _mma_wait_removed,
    _doubled,
    _phase_flipped,
    _shifted("count", ("mbarrier.init",), 1, "count", 1),
    _shifted("bytes", (EXPECT,), 1, "bytes", 16),
    _shifted("arrivals", (ARRIVE,), 1, "count", 1),
    _depth_shifted,
    _allocation_shrunk,
    _mma_wait_weakened,
    _store_wait_weakened,
    _early_arrivals,
    _late_waits,
    _early_releases,
    _slot_shifted,
    _roles_swapped,
    _indices_mixed,
    _accumulation_changed,
    *SPLIT_RULES,
    *SHARE_RULES,
    *OVER_ROWS_RULES,
    *RANGE_RULES,
    *PAGE_RULES,
    *PAIR_RULES,
    *LAZY_RULES,
    *SEGMENT_RULES,
    *RETAINED_RULES,
)
