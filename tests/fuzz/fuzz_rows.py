"""Random graphs whose rows are reduced without a product: softmax, norms, statistics, with steps around them."""

from __future__ import annotations

from fuzz_draft import Draft
from fuzz_products import reduced
from fuzz_steps import steps, store_some

from wsopt.graph.builder import Symbol


def rows(d: Draft) -> Symbol:
    """A tensor of rows, in up to two batches."""
    rank = d.weighted({0: 6, 1: 3, 2: 1})
    if rank:
        d.mark("batch" if rank == 1 else "two batch axes")
    lead = tuple(d.pick((1, 2, 3, 5)) for _ in range(rank))
    dtype = d.weighted({"bf16": 4, "f16": 3, "f32": 3, "f8e4m3": 0.2, "i32": 0.1})
    return d.tensor("x", (*lead, d.extent(), d.extent(any_number=False)), dtype)


def statistic(d: Draft, value: Symbol) -> Symbol:
    """One value a row."""
    kind = d.pick(("sum", "max", "min", "mean"))
    d.mark(f"statistic {kind}", "one value a row")
    return d.g.apply(f"reduce_{kind}", [value], {"axis": -1, "keepdims": d.chance(0.5)})


def row_graph(d: Draft) -> None:
    """Rows with steps before and after a reduction."""
    before = steps(d, rows(d), 2)
    value = reduced(d, before[-1])
    if d.chance(0.15):
        d.mark("two reductions")
        value = reduced(d, value)
    after = steps(d, value, 2)
    if d.chance(0.1):
        after.append(statistic(d, after[-1]))
    store_some(d, [*before[1:], *after])


def wrong_axis_graph(d: Draft) -> None:
    """A reduction along another axis than the last."""
    x = rows(d)
    axis = d.pick(range(len(x.shape)))
    centred = x - d.g.reduce_mean(x, axis=axis, keepdims=True)
    value = d.g.softmax(x, axis=axis) if d.chance(0.5) else centred
    store_some(d, [value])
