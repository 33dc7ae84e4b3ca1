"""Mistakes in kernels of which two blocks work on a tile together: barriers of the wrong block, tiles that are
divided otherwise, bytes and rows counted for both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wsopt.interpret.splice import Change, Edit, Rule, Source, argument, callee, nodes

_BASES = {"[[0]]": "[[1]]", "[[1]]": "[[0]]"}
"""Bases of barriers' layouts: one of both blocks, and one of each; with each the other."""


def _nodes(source: Source, name: str) -> Iterator[ast.Call]:
    """The calls of a name, on the device and where constants are set, by line."""
    found = (node for node in nodes(source.tree) if isinstance(node, ast.Call) and callee(node) == name)
    yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _other_barriers(source: Source) -> Iterator[Change]:
    """Where both blocks have one barrier each has its own, and the other way round."""
    for call in _nodes(source, "gl.allocate_shared_memory"):
        shape, layout = call.args[1], call.args[2]
        if not isinstance(layout, ast.Call) or callee(layout) != "mbarrier.MBarrierLayout":
            continue
        bases = argument(layout, 0, "cga_layout")
        if isinstance(bases, ast.List) and isinstance(shape, ast.List):
            text = _BASES[source.text(bases)]
            words = Edit(shape.elts[-1], "2" if text == "[[1]]" else "1")
            yield Change("other-barriers", "barriers of both blocks or of each", (words, Edit(bases, text)))


def _divided_otherwise(source: Source) -> Iterator[Change]:
    """A tile is divided along its other dimension, or each block has all of it."""
    for name in ("gl.NVMMASharedLayout", "gl.BlockedLayout", "TensorMemoryLayout"):
        for call in _nodes(source, name):
            bases = argument(call, len(call.args), "cga_layout")
            if isinstance(bases, ast.List) and source.text(bases) != "[[0]]":
                (basis,) = bases.elts
                assert isinstance(basis, ast.List)
                turned = ", ".join(source.text(one) for one in reversed(basis.elts))
                yield Change("other-side", "divided along the other dimension", (Edit(basis, f"[{turned}]"),))
                whole = ", ".join("0" for _ in basis.elts)
                yield Change("undivided", "each block has all", (Edit(basis, f"[{whole}]"),))


def _single(source: Source) -> Iterator[Change]:
    """Sums, or the launch, are of single blocks."""
    for call in _nodes(source, "TensorMemoryLayout"):
        both = argument(call, len(call.args), "two_ctas")
        if both is not None:
            yield Change("single-sums", "sums of single blocks", (Edit(both, "False"),))
    for node in (one for one in nodes(source.tree) if isinstance(one, ast.Dict)):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "num_ctas":
                yield Change("single-blocks", "launched as single blocks", (Edit(value, "1"),))


def _counted_for_both(source: Source) -> Iterator[Change]:
    """A block announces the bytes of both, or a consumer has the rows of one."""
    if not any(_single(source)):
        return
    for node in (one for one in source.tree.body if isinstance(one, ast.Assign)):
        name, value = source.text(node.targets[0]), node.value
        if name in ("RING_BYTES", "CONSUMER_ROWS") and isinstance(value, ast.Call):
            count = int(source.text(value.args[0]))
            other = 2 * count if name == "RING_BYTES" else count // 2
            yield Change("both-counted", f"{name} = {other}", (Edit(value.args[0], str(other)),))


PAIR_RULES: tuple[Rule, ...] = (_other_barriers, _divided_otherwise, _single, _counted_for_both)
