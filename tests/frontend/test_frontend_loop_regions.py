"""What the regions of chains of products look like: the loop's items, layouts, bounds, reduced extents."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import attention_graphs as a
import pytest
from attention_graphs import Sizes, attention, causal
from region_numpy import evaluate_region
from tile_graphs import extents

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Contraction, Region
from wsopt.graph.parse import load_graph
from wsopt.graph.reference import evaluate, random_inputs, relative_error
from wsopt.graph.types import Graph
from wsopt.lowering.reduced import reduced
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.statements import Reduction, Statement
from wsopt.tensors.views import K_BLOCK, Bound, Role

BATCH, GROUP, ROW, COLUMN, STREAM, INNER = (
    Role.BATCH,
    Role.GROUP,
    Role.ROW,
    Role.COLUMN,
    Role.STREAM,
    Role.INNER,
)
PROBLEMS = sorted((Path(__file__).parents[2] / "problems").glob("*attention*.json"))
CUT = Structure(64, 128, 64, 3, 4, Sharing.COOPERATIVE, False, False, 1, 1)


def words(region: Region) -> list[str]:
    """The loop's items, one line each."""
    lines = []
    for item in region.body:
        match item:
            case Statement(name, primitive, args):
                lines.append(f"{name} = {primitive}({', '.join(map(str, args))})")
            case Reduction(name, kind, value, rescale):
                lines.append(f"{name} = {kind} {value} rescale factor {rescale}")
            case Contraction(name, left, right, rescale=rescale):
                first = left if isinstance(left, str) else left.tensor
                lines.append(f"{name} = {first} @ {right.tensor} rescale factor {rescale}")
    return lines


def elementwise(graph: Graph, *, masked: bool = True) -> Counter[str]:
    """Primitives that the loop computes for each score; without masks where those are not needed."""
    region = find_region(graph)
    pairs = {} if masked else dict(region.unmasked)
    items = {item.name: item for item in region.body}
    wanted: set[str] = set()
    waiting = [item.name for item in region.body if not isinstance(item, Statement)]
    while waiting:
        name = waiting.pop()
        name = pairs.get(name, name)
        if name in wanted or name not in items:
            continue
        wanted.add(name)
        item = items[name]
        read = {Statement: "args", Reduction: "value", Contraction: "left"}[type(item)]
        found = getattr(item, read)
        waiting += [n for n in (found if isinstance(found, tuple) else (found,)) if isinstance(n, str)]
    return Counter(
        i.primitive
        for n, i in items.items()
        if n in wanted and isinstance(i, Statement) and i.spans == K_BLOCK
    )


def test_the_loop_of_causal_attention() -> None:
    region = find_region(attention(causal, Sizes(inner=64)))
    scale = repr(0.125 * math.log2(math.e))
    assert words(region) == [
        "i$0 = iota_row()",
        "j$0 = iota_stream()",
        "s = q @ k rescale factor None",
        "less_equal_0$0 = less_equal(j$0, i$0)",
        "masked$0 = where(less_equal_0$0, s, -inf)",
        "p$0 = max masked$0 rescale factor None",
        f"p$1 = mul(masked$0, {scale})",
        "p$2 = equal(p$0, -inf)",
        "p$3 = where(p$2, 0.0, p$0)",
        f"p$4 = mul(p$3, {scale})",
        "p$5 = sub(p$1, p$4)",
        "p$6 = exp2(p$5)",
        f"p$7 = mul(p$0.before, {scale})",
        "p$8 = sub(p$7, p$4)",
        "p$9 = exp2(p$8)",
        "p$10 = sum p$6 rescale factor p$9",
        "pc$0 = round_bf16(p$6)",
        "pv = pc$0 @ v rescale factor p$9",
    ]
    assert [(s.name, s.primitive, s.args) for s in region.statements] == [
        ("p$11", "equal", ("p$10", 0.0)),
        ("p$12", "where", ("p$11", 1.0, "p$10")),
        ("pv$0", "div", (1.0, "p$12")),
        ("pv$1", "mul", ("pv", "pv$0")),
        ("o$0", "round_bf16", ("pv$1",)),
    ]
    assert region.bounds == (Bound(1, -1, 0),)
    assert region.unmasked == (("masked$0", "s"),)
    assert [view.tensor for view in region.operands] == ["k", "v"]
    assert [view.tensor for view in region.stationary_operands] == ["q"]
    assert region.sources == ()
    assert extents(region) == {BATCH: 4, ROW: 72, COLUMN: 16, STREAM: 72, INNER: 64}
    assert region.flops == 2 * 4 * 72 * 72 * (64 + 16)


PLAIN = {"mul": 1, "sub": 1, "exp2": 1, "round_bf16": 1}


@pytest.mark.parametrize(
    ("score", "more"),
    [
        (lambda _, x: x, {}),
        (causal, {}),
        (a.window, {}),
        (lambda p, x: x * 3.0 / 7.0, {}),
        (a.per_head, {"mul": 1}),
        (a.alibi, {"mul": 1, "add": 1}),
        (a.bias("queries", "keys"), {"mul": 1, "add": 1}),
        (a.soft_cap, {"mul": 2, "exp2": 1, "add": 1, "div": 1}),
        (lambda p, x: x + p.g.cast(p.rows, dtype="f32") * 0.5, {}),
    ],
)
def test_what_a_score_costs_where_nothing_is_masked(score: a.Score, more: dict[str, int]) -> None:
    assert elementwise(attention(score), masked=False) == Counter(PLAIN) + Counter(more)


def test_a_statistic_written_out_is_the_softmaxs_own() -> None:
    plain, beside, out = (find_region(g) for g in (attention(causal), a.with_lse(), a.written_out(lse=True)))
    assert len(words(beside)) == len(words(plain)) == len(words(out))
    lse = beside.outputs[1]
    assert lse.view.roles == (BATCH, ROW)
    assert next(s for s in beside.statements if s.name == lse.value).spans == frozenset({ROW})


def test_groups_become_rows_where_no_mask_counts_them() -> None:
    sizes = Sizes(batch=2, heads=4, queries=32, keys=48)
    free, held = (find_region(a.grouped("reshape", s, sizes, groups=8)) for s in (None, causal))
    assert extents(free)[ROW] == 8 * 32
    assert GROUP not in extents(free)
    assert (extents(held)[BATCH], extents(held)[GROUP], extents(held)[ROW]) == (8, 8, 32)
    q, k = held.contractions[0].left, held.contractions[0].right
    assert not isinstance(q, str)
    assert q.roles == (BATCH, GROUP, ROW, INNER)
    assert (q.origin, q.parts) == (((0, 1), (1,), (2,), (3,)), ((0, 8), (8, 1), (0, 1), (0, 1)))
    assert (k.roles, k.parts) == ((BATCH, STREAM, INNER), ())
    assert held.outputs[0].view.parts == q.parts
    assert held.outputs[0].shape == (("q", 0), ("q", 1), ("q", 2), ("v", 3))
    left = free.contractions[0].left
    assert not isinstance(left, str)
    assert (left.origin, left.parts) == (((0, 1), (1, 2), (3,)), ((0, 8), (8, 1), (0, 1)))


def test_a_second_batch_axis_need_not_be_shared() -> None:
    region = find_region(a.packed())
    assert all(view.roles[:2] == (BATCH, GROUP) for view in (*region.operands, *region.stationary_operands))
    assert region.outputs[0].view.roles == (BATCH, GROUP, ROW, COLUMN)


@pytest.mark.parametrize(
    ("score", "bounds", "wheres"),
    [
        (a.window, {Bound(1, -1, 0), Bound(-1, 1, 20)}, 1),
        (a.around, {Bound(1, -1, 19), Bound(-1, 1, 19), Bound(0, -1, 71)}, 2),
        (a.nested, {Bound(1, -1, 0), Bound(-1, 1, 20)}, 2),
        (a.key_limit, {Bound(0, -1, 36)}, 1),
        (a.segments, {Bound(1, -1, 0)}, 2),
        (a.even, {Bound(0, -1, 71)}, 2),
        (a.added(-math.inf), {Bound(1, -1, 0)}, 1),
        (a.chosen(-1e30), {Bound(1, -1, 0)}, 1),
        (a.chosen(-100.0), {Bound(0, -1, 71)}, 2),
        (lambda p, x: p.g.where(p.rows < 20, x, -1e30), {Bound(0, -1, 71)}, 2),
        (lambda p, x: p.g.where(p.rows < 20, x, -math.inf), {Bound(-1, 0, 19), Bound(0, -1, 71)}, 2),
        (
            lambda p, x: p.g.where(p.columns * 3 <= p.rows * 3 + 5, x, -math.inf),
            {Bound(1, -1, 1), Bound(0, -1, 71)},
            2,
        ),
    ],
)
def test_bounds(score: a.Score, bounds: set[Bound], wheres: int) -> None:
    region = find_region(attention(score))
    assert set(region.bounds) == bounds
    chosen = [
        s for s in region.body if isinstance(s, Statement) and s.primitive == "where" and s.spans == K_BLOCK
    ]
    assert len(chosen) == wheres


def test_what_one_sum_takes_is_no_bound() -> None:
    """A sum over all keys beside a masked product: no K-block may be skipped, and the mask stays."""

    def score(p: a.Parts, x: a.Symbol) -> a.Symbol:
        return p.g.where(p.columns <= p.rows, x, 0.0) / (
            p.g.reduce_sum(p.g.abs(x), axis=-1, keepdims=True) + 1.0
        )

    region = find_region(a.linear(score))
    assert region.bounds == ()
    assert region.unmasked == ()


def test_exponents_take_no_approximate_tanh() -> None:
    assert "tanh_approx" not in elementwise(attention(a.soft_cap))
    assert "tanh_approx" in elementwise(a.linear(lambda p, x: p.g.tanh(x)))


@pytest.mark.slow
@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_reduced_problems_have_the_same_loop(path: Path) -> None:
    graph = load_graph(path)
    large, small_graph = find_region(graph), reduced(graph, CUT, 4)
    small = find_region(small_graph)
    assert words(small) == words(large)
    assert [view.roles for view in small.operands] == [view.roles for view in large.operands]
    assert small.statements == large.statements
    assert small.extent(ROW) > 2 * CUT.tile_rows
    assert small.extent(STREAM) > 3 * CUT.depth
    assert small.extent(BATCH) * small.extent(GROUP) <= 16
    inputs = random_inputs(small_graph, 0)
    wanted = evaluate(small_graph, inputs)
    found, _ = evaluate_region(small_graph, small, inputs, rows=192, k_block=64, split=True)
    for name, value in wanted.items():
        assert relative_error(found[name].astype("f4"), value.astype("f4")) < 8e-3


def test_one_tensor_used_twice_keeps_one_extent() -> None:
    graph = a.shared(Sizes(keys=2000))
    small = find_region(reduced(graph, CUT, 4))
    assert small.extent(ROW) == small.extent(STREAM) < 2000
