"""Extents that change from call to call: one compilation, whose pieces are right at each extent of a range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor, nn  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch_pieces import OPTIONS, Counted, fresh, with_pieces  # noqa: E402

from wsopt.graph.dims import Dim  # noqa: E402
from wsopt.graph.symbolic import SymbolicGraph, bound  # noqa: E402
from wsopt.graph.types import DType, Graph, Input, Node, TensorType  # noqa: E402
from wsopt.ranges.build import RangeBuild  # noqa: E402
from wsopt.torch import backend, choose, compiler, execute, explain, outside, symbols  # noqa: E402
from wsopt.torch.calls import Calls  # noqa: E402
from wsopt.torch.changing import Changing  # noqa: E402
from wsopt.torch.changing import changing as changing_of  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.cutting import fx_flops  # noqa: E402
from wsopt.torch.execute import referred  # noqa: E402
from wsopt.torch.joining import joined, joined_order, runs  # noqa: E402
from wsopt.torch.laying import empty  # noqa: E402
from wsopt.torch.outcomes import Wanted, known  # noqa: E402
from wsopt.torch.piece import Piece  # noqa: E402
from wsopt.torch.report import report_of  # noqa: E402
from wsopt.torch.rounds import Settled  # noqa: E402
from wsopt.torch.sizes import Size  # noqa: E402
from wsopt.torch.symbols import Symbol, Symbols  # noqa: E402
from wsopt.torch.untaken import Untaken  # noqa: E402

B = torch.bfloat16


_fresh = pytest.fixture(autouse=True)(fresh)


def same(found: Any, plain: Any) -> None:
    if isinstance(plain, tuple):
        for one, other in zip(found, plain, strict=True):
            same(one, other)
        return
    assert (found.shape, found.dtype, found.stride()) == (plain.shape, plain.dtype, plain.stride())
    assert torch.allclose(found.float(), plain.float(), rtol=2e-2, atol=2e-2)


def agree(
    model: Callable[..., Any],
    make: Callable[[int], tuple[Tensor, ...]],
    axes: dict[int, int],
    extents: tuple[int, ...],
    ends: tuple[int, int] | None = None,
    **options: Any,
) -> Settled:
    """Compile a model with an axis that changes of each of these inputs, once, and hold it against the model."""
    fast = Counted(model, **options)
    with torch.no_grad(), watching() as seen:
        for number, extent in enumerate(extents):
            given = make(extent)
            for place, axis in axes.items() if number == 0 else ():
                how = {} if ends is None else {"min": ends[0], "max": ends[1]}
                torch._dynamo.mark_dynamic(given[place], axis, **how)
            plain = model(*(one.clone() for one in given))
            same(fast.call(*given), plain)
    assert fast.times == 1
    (settled,) = seen
    return settled


def told(settled: Settled) -> list[str]:
    """The operations of each piece, but for casts and views, and the range of its dimension."""
    quiet = ("cast", "reshape", "transpose")
    return [
        f"{' '.join(node.op for node in piece.graph.nodes if node.op not in quiet)}; {piece.changing}"
        for piece in settled.taken
    ]


def layer(inner: int = 128, outer: int = 64) -> nn.Linear:
    return nn.Linear(inner, outer, dtype=B)


def rows(extent: int) -> tuple[Tensor, ...]:
    return (torch.randn(extent, 128, dtype=B),)


# --- one dimension --------------------------------------------------------------------------------------


def test_rows_of_a_product_are_a_range() -> None:
    model = nn.Sequential(layer(), nn.ReLU())
    found = agree(model, rows, {0: 0}, (32, 2, 3, 77, 256), (2, 256))
    assert told(found) == ["matmul add relu; n from 2 to 256"]
    (piece,) = found.taken
    assert piece.changing is not None
    assert piece.changing.typically == (32,)
    assert piece.typical == bound(piece.changing.graph, {"n": 32})


def test_graphs_of_numbers_are_made_of_what_is_asked_about_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """At two corners and where the extent is typical, and of pieces that are taken for their bytes and their call."""
    asked: list[object] = []
    at = Changing.at
    monkeypatch.setattr(Changing, "at", lambda self, extents: (asked.append(extents), at(self, extents))[1])
    monkeypatch.setattr(compiler, "_ORACLES", {})
    model = nn.Sequential(nn.LayerNorm(64, dtype=B), nn.Linear(64, 128, dtype=B), nn.GELU())
    x = torch.randn(32, 64, dtype=B)
    torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad(), watching() as seen:
        with_pieces(model)(x)
    (oracle,) = compiler._ORACLES.values()
    assert len(asked) <= 3 * len(oracle.known) + 2 * len(seen[0].taken)


def test_explain_names_the_range() -> None:
    x = torch.randn(32, 128, dtype=B)
    torch._dynamo.mark_dynamic(x, 0, min=4, max=5000)
    report = explain(nn.Sequential(layer(), nn.ReLU()), x, options=OPTIONS)
    assert report.share == 1
    assert "1 x matmul add relu -> bf16[n, 64], n from 4 to 5,000, 5.24e+05 operations" in str(report)


def test_a_second_shape_makes_a_range_by_itself() -> None:
    fast, model = Counted(product := layer()), product
    with torch.no_grad(), watching() as seen:
        for extent in (32, 48, 5, 1, 2, 333):
            (x,) = rows(extent)
            same(fast.call(x), model(x))
    # The first shape, all shapes, and a single row, which torch has a graph of its own for.
    assert fast.times == 3
    assert [piece.changing is None for one in seen for piece in one.taken] == [True, False, True]


def test_batches_of_sequences_of_which_one_changes() -> None:
    def make(extent: int) -> tuple[Tensor, ...]:
        return (torch.randn(3, extent, 128, dtype=B),)

    model = nn.Sequential(layer(), nn.GELU(), layer(64, 128), nn.LayerNorm(128, dtype=B))
    found = agree(model, make, {0: 1}, (16, 2, 17, 100))
    assert all(one.endswith("; n from 2 to 65,536") for one in told(found))
    assert report_of([found]).share == 1


def test_products_of_two_that_change_are_one_dimension() -> None:
    """Rows are batches times tokens, and nothing in a product tells the two apart."""
    fast, model = Counted(model_ := nn.Sequential(layer(), nn.ReLU())), model_
    with torch.no_grad(), watching() as seen:
        for batch, tokens in ((4, 16), (2, 3), (5, 7), (9, 100)):
            x = torch.randn(batch, tokens, 128, dtype=B)
            for axis in (0, 1):
                torch._dynamo.mark_dynamic(x, axis)
            same(fast.call(x), model(x))
    assert fast.times == 1
    assert told(seen[0]) == ["matmul add relu; n from 4 to 65,536"]
    assert seen[0].taken[0].changing.typically == (64,)


def test_joined_rows_go_through_norms_and_heads() -> None:
    """Batches and tokens are joined in whatever a piece does beside its product, and results lie as they have to."""
    inner, norm = layer(128, 128), nn.LayerNorm(128, dtype=B)

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        y = norm(inner(x) + x)
        return y, inner(torch.relu(y)).view(x.shape[0], x.shape[1], 4, 32).transpose(1, 2)

    fast = Counted(model)
    with torch.no_grad(), watching() as seen:
        for batch, tokens in ((4, 16), (2, 3), (9, 31)):
            x = torch.randn(batch, tokens, 128, dtype=B)
            for axis in (0, 1):
                torch._dynamo.mark_dynamic(x, axis)
            same(fast.call(x), model(x))
    assert fast.times == 1
    assert report_of(seen).share == 1
    assert all(one.endswith("; n from 4 to 65,536") for one in told(seen[0]))


def test_what_goes_along_one_of_two_is_not_joined() -> None:
    fast = Counted(model := lambda x: torch.softmax(x.float(), 1).to(B))
    with torch.no_grad(), watching() as seen:
        for batch, tokens in ((4, 16), (2, 3), (9, 31)):
            x = torch.randn(batch, tokens, 64, dtype=B)
            for axis in (0, 1):
                torch._dynamo.mark_dynamic(x, axis)
            same(fast.call(x), model(x))
    assert fast.times == 1
    assert told(seen[0]) == ["reduce_max sub exp reduce_sum div; m from 2 to 512, n from 2 to 2,048"]


def test_two_that_change_by_themselves_are_two_dimensions() -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x @ y.T).T

    fast = Counted(model)
    with torch.no_grad(), watching() as seen:
        for rows_, columns in ((16, 32), (24, 8), (3, 40), (64, 64), (2, 16)):
            x, y = torch.randn(rows_, 64, dtype=B), torch.randn(columns, 64, dtype=B)
            torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
            torch._dynamo.mark_dynamic(y, 0, min=8, max=64)
            same(fast.call(x, y), model(x, y))
    assert fast.times == 1
    assert told(seen[0]) == ["matmul relu; m from 8 to 64, n from 2 to 64"]


def images(count: int, height: int, width: int) -> Tensor:
    return torch.randn(count, 32, height, width, dtype=B).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("axes", [(2, 3), (0, 2, 3)])
@pytest.mark.parametrize("first", [(16, 20), (16, 16)])
def test_images_of_any_size_are_read_as_they_lie(axes: tuple[int, ...], first: tuple[int, int]) -> None:
    """Rows and columns are one dimension, also where torch has one symbol for both; batches are another."""
    model = nn.Sequential(nn.Conv2d(32, 64, 1, dtype=B), nn.ReLU()).to(memory_format=torch.channels_last)
    fast, count = Counted(model), 4 if 0 in axes else 3
    sizes = [first, *((5, 5), (9, 9))] if first[0] == first[1] else [first, (5, 7), (2, 9)]
    with torch.no_grad(), watching() as seen:
        for number, size in enumerate(sizes):
            x = images(count + number * (0 in axes), *size)
            for axis in axes if number == 0 else ():
                torch._dynamo.mark_dynamic(x, axis)
            same(fast.call(x), model(x))
    assert fast.times == 1
    (piece,) = seen[0].taken
    batches = "m" if 0 in axes else "3"
    assert f"bf16[{batches}, n, 32]" in [str(one.type) for one in piece.graph.inputs]
    assert piece.turned_bytes == piece.copied_bytes == 0


def square(perm: tuple[int, ...]) -> Graph:
    """A tensor of two axes of one symbol, in another order."""
    n = Size(((("s0",), 1),), {"s0": 16})
    shape = (n, n, 64)
    x = Input("i0", TensorType(shape, DType.BF16), False, None)
    found = TensorType(tuple(shape[axis] for axis in perm), DType.BF16)
    return Graph("piece", "", (x,), (Node("n0", "transpose", ("i0",), (("perm", perm),), found),), ("n0",))


def test_axes_of_one_symbol_are_joined_where_they_stay_in_order() -> None:
    graph = square((2, 0, 1))
    (run,) = runs(graph)
    assert joined(graph, run).nodes[0].attr("perm", tuple) == (1, 0)
    with pytest.raises(Untaken, match="transpose parts them"):
        joined(square((2, 1, 0)), run)


def test_joining_is_tried_only_where_something_can_come_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a graph of one dimension that an input tells, and in one of two for each run of axes once."""
    tried: list[object] = []
    counted = lambda graph, run: (tried.append(run), joined(graph, run))[1]  # noqa: E731
    monkeypatch.setattr("wsopt.torch.changing.joined", counted)
    known = {name: Symbol(2, symbols.LARGEST, False, 16, None, None, 0) for name in ("s0", "s1")}  # type: ignore[arg-type]
    assert changing_of(square((2, 0, 1)), Symbols(known)) is not None
    assert tried == []
    two = tuple(Size((((name,), 1),), {name: 16}) for name in known)
    x = Input("i0", TensorType((*two, 64), DType.BF16), False, None)
    found = changing_of(Graph("piece", "", (x,), (), ("i0",)), Symbols(known))
    assert found is not None
    assert [str(one.type) for one in found[0].graph.generic.inputs] == ["bf16[n, 64]"]
    assert tried == [two]


def test_an_order_of_joined_axes() -> None:
    assert joined_order((0, 2, 3, 1), (2, 5, 7, 32), (2, 35, 32)) == (0, 2, 1)
    with pytest.raises(Untaken, match="in memory alone"):
        joined_order((0, 3, 2, 1), (2, 5, 7, 32), (2, 35, 32))


@contextmanager
def largest(extent: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symbols, "LARGEST", extent)
        yield


@pytest.mark.parametrize("rest", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_beyond_the_range_all_goes_the_usual_way(rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    beyond: list[int] = []
    before = outside.Within._outside

    def counted(self: outside.Within, args: Any) -> Any:
        beyond.extend(one.shape[0] for one in args if isinstance(one, Tensor) and one.shape[-1] == 128)
        return before(self, args)

    monkeypatch.setattr(outside.Within, "_outside", counted)
    with largest(64):
        found = agree(nn.Sequential(layer(), nn.ReLU()), rows, {0: 0}, (16, 64, 65, 7, 300, 64), rest=rest)
    assert told(found) == ["matmul add relu; n from 2 to 64"]
    assert [one for one in beyond if one > 64] == [65, 300]
    assert {*beyond} <= {65, 300, 64}


def test_an_operator_is_right_beyond_its_range() -> None:
    """Whoever calls it, as a backward graph may: beyond the range it computes what its graph says."""
    model = layer()
    found = agree(model, rows, {0: 0}, (16,), (2, 32))
    launch = referred(found.taken[0])
    for extent in (1, 2, 40):
        (x,) = rows(extent)
        (y,) = empty(launch.layouts([x.shape] * 3), "cpu")
        inputs = {"x": x, "weight": model.weight, "bias": model.bias}
        launch(*_given(found.taken[0], inputs), y)
        same(y, model(x).detach())


def _given(piece: Piece, inputs: dict[str, Tensor]) -> list[Tensor]:
    by_shape = {
        tuple(one.shape[1:]) if name == "x" else tuple(one.shape): one for name, one in inputs.items()
    }
    found = []
    for item in piece.graph.inputs:
        shape = item.type.shape
        ours = inputs["x"] if not isinstance(shape[0], int) or str(shape[0]) == "n" else by_shape[shape]
        found.append(ours.detach())
    return found


# --- what a model does with it --------------------------------------------------------------------------


def test_writes_are_seen_by_the_caller() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.seen = layer(128, 128), nn.Buffer(torch.zeros(128))

        def forward(self, x: Tensor) -> Tensor:
            y = self.inner(x)
            x.mul_(2)
            self.seen.add_(y.float().sum(0))
            return y + x

    model, other = Model(), Model()
    other.load_state_dict(model.state_dict())
    fast = Counted(model)
    with torch.no_grad(), watching() as seen:
        for extent in (16, 5, 33):
            (x,) = rows(extent)
            torch._dynamo.mark_dynamic(x, 0)
            theirs = x.clone()
            same(fast.call(x), other(theirs))
            assert torch.equal(x, theirs)
            assert torch.allclose(model.seen, other.seen, rtol=1e-2, atol=0.5)
    assert fast.times == 1
    assert told(seen[0])


def test_results_lie_as_they_do_without_it() -> None:
    inner = layer(128, 128)

    def model(x: Tensor) -> tuple[Tensor, ...]:
        heads = inner(x).view(2, -1, 4, 32).transpose(1, 2)
        return heads, heads.transpose(-1, -2), torch.relu(x @ inner.weight.T).transpose(0, 1)

    found = agree(model, lambda n: (torch.randn(2, n, 128, dtype=B),), {0: 1}, (16, 3, 40))
    assert told(found)


def test_inputs_may_lie_in_any_way() -> None:
    inner = layer(128, 64)

    def make(extent: int) -> tuple[Tensor, ...]:
        whole = torch.randn(extent, 2, 128, dtype=B)
        return (whole[:, 1], torch.randn(128, extent, dtype=B).T)

    def model(x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(inner(x)) * inner(y)

    found = agree(model, make, {0: 0, 1: 0}, (16, 3, 40))
    assert told(found)


def test_extents_reach_a_piece_by_views() -> None:
    inner = layer(64, 128)

    def model(x: Tensor) -> Tensor:  # rows are twice as many, and then four to one
        return torch.softmax(inner(x.reshape(-1, 64)).reshape(-1, 4, 32), -1)

    found = agree(model, lambda n: (torch.randn(n, 128, dtype=B),), {0: 0}, (16, 3, 41))
    assert told(found)
    shapes = [str(one.type) for piece in found.taken for one in (*piece.graph.inputs, *piece.graph.nodes)]
    assert "bf16[n, 2, 64]" in shapes


def test_the_number_itself_stays_out_of_kernels() -> None:
    """A mean written out divides by the extent: it is no number of any graph, whatever it is at first."""

    def model(x: Tensor) -> Tensor:
        return torch.softmax(x @ x.T, -1).sum(0) / x.shape[0]

    for first in (16, 48):
        torch._dynamo.reset()
        found = agree(model, rows, {0: 0}, (first, 7, 64))
        numbers = [x for piece in found.taken for node in piece.graph.nodes for x in node.inputs]
        assert not {16, 48, 1 / 16, 1 / 48} & {*numbers}


@pytest.mark.parametrize("causal", [True, False])
def test_attention_over_a_sequence_that_changes(causal: bool) -> None:
    def model(x: Tensor) -> Tensor:
        q, k, v = x.view(1, -1, 3, 2, 64).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def make(extent: int) -> tuple[Tensor, ...]:
        return (torch.randn(1, extent, 384, dtype=B),)

    found = agree(model, make, {0: 1}, (16, 7, 33, 100), (2, 512))
    assert len(found.taken) == 1
    assert told(found)[0].endswith("; n from 2 to 512")


def lower(rows_: Tensor, keys: Tensor) -> Tensor:
    return keys <= rows_


def window(rows_: Tensor, keys: Tensor) -> Tensor:
    return (keys <= rows_) & (keys > rows_ - 5)


def prefix(rows_: Tensor, keys: Tensor) -> Tensor:
    return (keys <= rows_) | (keys < 4)


@pytest.mark.parametrize("seen", [lower, window, prefix])
@pytest.mark.parametrize("added", [False, True])
def test_masks_of_positions_are_masks_at_every_length(
    seen: Callable[[Tensor, Tensor], Tensor], added: bool
) -> None:
    """As truth values, and as a number that is added where they are false."""

    def model(q: Tensor, k: Tensor) -> Tensor:
        positions = torch.arange(q.shape[2])
        mask = seen(positions[None, None, :, None], positions[None, None, None, :])
        if added:
            mask = torch.where(mask, 0.0, -torch.inf).to(B)
        return nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)

    def make(extent: int) -> tuple[Tensor, ...]:
        return tuple(torch.randn(1, 2, extent, 64, dtype=B) for _ in range(2))

    found = agree(model, make, {0: 2, 1: 2}, (16, 2, 7, 33, 100), (2, 512))
    ((words, range_),) = (one.split("; ") for one in told(found))
    assert (words.count("iota") >= 2, "where softmax matmul" in words, range_) == (
        True,
        True,
        "n from 2 to 512",
    )
    assert report_of([found]).share == 1


def test_positions_that_begin_elsewhere_are_masks() -> None:
    """Keys of 8 tokens before the sequence, and positions that a library finds by running sums of differences."""
    before = torch.randn(1, 2, 8, 64, dtype=B)

    def model(q: Tensor) -> Tensor:
        k = torch.cat([before, q], 2)
        own = (torch.arange(q.shape[2]) + 8)[None]
        apart = (torch.diff(own, prepend=own[:, :1] - 1, dim=-1) != 1).cumsum(-1)
        keys = torch.arange(k.shape[2])
        mask = (keys <= own[0][:, None]) & (apart[0][:, None] == 0)
        return nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask[None, None])

    def make(extent: int) -> tuple[Tensor, ...]:
        return (torch.randn(1, 2, extent, 64, dtype=B),)

    found = agree(model, make, {0: 2}, (16, 2, 7, 33, 100), (2, 512))
    assert "iota iota add less_equal matmul mul where softmax matmul; n from 2 to 512" in told(found)


def decode(query: Tensor, keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention of a token behind a cache that it makes longer."""
    keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
    return nn.functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)


def behind_a_cache(length: int) -> tuple[Tensor, ...]:
    extents = ((4, 1), (2, length), (2, length), (2, 1), (2, 1))
    return tuple(torch.randn(2, *each, 32, dtype=B) for each in extents)


def test_a_cache_that_grows_has_as_many_values_as_keys() -> None:
    found = agree(decode, behind_a_cache, {1: 2, 2: 2}, (10, 11, 30))
    assert told(found) == ["matmul mul softmax matmul; n from 2 to 65,536"]


def test_counting_operations_notes_no_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "note_what_agrees", lambda module: None)
    monkeypatch.setattr(
        compiler, "asks_for_none", lambda module, inputs: False
    )  # torch's own attention counts
    found = agree(decode, behind_a_cache, {1: 2, 2: 2}, (10, 11))
    values = [node.meta.get("val") for node in found.lowered.graph.nodes]
    tensor = next(val for val in values if isinstance(val, Tensor))
    assert not tensor.fake_mode.shape_env.guards
    assert fx_flops(found.lowered) == 2 * 2 * 4 * 11 * (32 + 32)


def test_a_number_that_a_model_is_called_with_may_be_any() -> None:
    weight = torch.randn(64, 128, dtype=B) / 8

    def model(x: Tensor, times: int) -> Tensor:
        return torch.relu(x @ weight.T) * times

    fast, (x,) = Counted(model), rows(32)
    with torch.no_grad():
        for times in (3, 5, 0, -2):
            same(fast.call(x, times), model(x, times))


def test_queries_and_keys_of_lengths_that_change() -> None:
    def model(q: Tensor, k: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, k)

    fast = Counted(model)
    with torch.no_grad(), watching() as seen:
        for rows_, keys in ((16, 24), (3, 5), (40, 7), (7, 64)):
            q, k = (torch.randn(1, 2, extent, 64, dtype=B) for extent in (rows_, keys))
            torch._dynamo.mark_dynamic(q, 2, min=2, max=64)
            torch._dynamo.mark_dynamic(k, 2, min=2, max=64)
            same(fast.call(q, k), model(q, k))
    assert (fast.times, told(seen[0])) == (1, ["matmul mul softmax matmul; m from 2 to 64, n from 2 to 64"])


@pytest.mark.parametrize("rest", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_attention_of_batches_and_sequences_that_both_change(rest: str) -> None:
    """Products of the rows are in one dimension, attention of batches and sequences in two, in one graph."""
    inner = layer(128, 384)

    def model(x: Tensor) -> Tensor:
        q, k, v = inner(x).view(x.shape[0], x.shape[1], 3, 2, 64).permute(2, 0, 3, 1, 4)
        positions = torch.arange(x.shape[1])
        mask = positions[None, None, None, :] <= positions[None, None, :, None]
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    fast = Counted(model, rest=rest)
    with torch.no_grad(), watching() as seen:
        for batch, tokens in ((4, 16), (2, 3), (5, 7), (2, 100)):
            x = torch.randn(batch, tokens, 128, dtype=B)
            for axis in (0, 1):
                torch._dynamo.mark_dynamic(x, axis)
            same(fast.call(x), model(x))
    assert (fast.times, report_of(seen).share) == (1, 1)
    assert told(seen[0]) == [
        "matmul add; n from 4 to 65,536",
        "slice slice slice iota iota less_equal matmul mul where softmax matmul; m from 2 to 512, n from 2 to 2,048",
    ]


def test_a_corner_without_a_kernel_is_named() -> None:
    """Rows and columns have kernels each by itself, and none of a width that no copy moves."""
    fast = Counted(model := lambda x, y: torch.relu(x @ y))
    with torch.no_grad(), watching() as seen:
        for rows_, columns in ((16, 32), (24, 8), (3, 5)):
            x, y = torch.randn(rows_, 64, dtype=B), torch.randn(64, columns, dtype=B)
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(y, 1)
            same(fast.call(x, y), model(x, y))
    assert (fast.times, told(seen[0])) == (1, [])
    report = report_of(seen)
    assert (report.share, report.flops) == (0, 2 * 16 * 64 * 32)
    assert "with m = 2, n = 2: " in str(report)


@pytest.mark.parametrize(
    ("extents", "expected"), [((2, 16), 0), ((2, 17), 1), ((3, 16), 2), ((4, 48), 3), ((9, 17), 5)]
)
def test_cells_are_combinations_of_classes(extents: tuple[int, int], expected: int) -> None:
    dims = (Dim("m", 2, 9, ((2, 1.0),)), Dim("n", 2, 48, ((16, 1.0),)))
    graph = Graph("piece", "", (Input("i0", TensorType((1,), DType.F32), False, None),), (), ("i0",))
    changing = Changing(SymbolicGraph(graph, dims), (("s0",), ("s1",)))
    assert changing.cell({"m": (2, 4, 9), "n": (16, 48)}, extents) == expected
    assert changing.corners == ((2, 2), (2, 48), (9, 2), (9, 48))
    assert changing.typically == (2, 16)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (((8, None), (512, None)), ((2, 128), (2, 8192))),
        (((8, 64), (512, None)), ((2, 64), (2, 16384))),
        (((8, 64), (512, 4096)), ((2, 64), (2, 4096))),
        (((2000, None), (4000, None)), ((2, 2000), (2, 4000))),
    ],
)
def test_ranges_of_two_without_bounds_have_a_corner_that_is_not_too_large(
    bounds: Any, expected: tuple[tuple[int, int], ...]
) -> None:
    known = {
        f"s{place}": Symbol(2, most or symbols.LARGEST, most is not None, typical, None, None, place)  # type: ignore[arg-type]
        for place, (typical, most) in enumerate(bounds)
    }
    sizes = [Size((((name,), 1),), {name: one.typical}) for name, one in known.items()]
    x, y = (Input(f"i{at}", TensorType((one, 64), DType.BF16), False, None) for at, one in enumerate(sizes))
    graph = Graph("piece", "", (x, y), (), ("i0",))
    found = changing_of(graph, Symbols(known))
    assert found is not None
    assert found[0].ends == expected
    assert [str(one.type) for one in found[0].graph.generic.inputs] == ["bf16[m, 64]", "bf16[n, 64]"]


def test_attention_of_batches_that_change() -> None:
    def model(q: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, q, q)

    found = agree(model, lambda n: (torch.randn(n, 2, 32, 64, dtype=B),), {0: 0}, (4, 3, 9), (2, 64))
    assert told(found) == ["matmul mul softmax matmul; n from 2 to 64"]


def test_training_agrees_in_both_directions() -> None:
    model, other = (nn.Sequential(layer(), nn.GELU(), layer(64, 128)) for _ in range(2))
    other.load_state_dict(model.state_dict())
    fast = Counted(model)
    with watching() as seen:
        for extent in (16, 5, 40):
            (x,) = rows(extent)
            torch._dynamo.mark_dynamic(x, 0)
            for one in (fast.call, other):
                one(x).float().square().mean().backward()
            for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
                assert mine.grad is not None
                assert theirs.grad is not None
                scale = theirs.grad.abs().max()
                assert torch.allclose(mine.grad, theirs.grad, rtol=5e-2, atol=0.03 * float(scale))
                mine.grad = theirs.grad = None
    assert fast.times == 1
    assert [len(one.taken) > 0 for one in seen] == [True, True]


def test_inductor_calls_pieces_at_every_extent() -> None:
    model = nn.Sequential(layer(), nn.ReLU(), layer(64, 128))

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        y = model(torch.sin(x))
        return y, torch.cumsum(y, 0)

    found = agree(both, rows, {0: 0}, (16, 3, 100), rest="inductor")
    assert told(found)


def test_a_backend_is_asked_once_of_torch_s_own_counter() -> None:
    counter = CompileCounterWithBackend("eager")
    model = layer()
    fast = torch.compile(model, backend=lambda m, i: backend(counter(m, i) and m, i, options=OPTIONS))
    with torch.no_grad():
        for extent in (8, 9, 10, 11, 12):
            (x,) = rows(extent)
            torch._dynamo.mark_dynamic(x, 0)
            same(fast(x), model(x))
    assert counter.frame_count == 1


# --- kernels --------------------------------------------------------------------------------------------


@pytest.mark.solver
@pytest.mark.compiler
def test_kernels_of_a_range_are_built_and_simulated() -> None:
    pytest.importorskip("triton")
    model = nn.Sequential(layer(), nn.ReLU())
    found = agree(model, rows, {0: 0}, (48, 16, 33, 64), (16, 64), execute="simulation")
    (piece,) = found.taken
    judged = found.judged[piece.key]
    assert isinstance(judged.build, RangeBuild)
    assert judged.build.record.ends == {"n": (16, 32, 48, 64)}
    assert judged.ours_us == judged.build.record.predicted_us[2]
    assert "n from 16 to 64" in str(report_of([found]))
    # What was built is found by the next process.
    assert known(Wanted(piece.built), "h200") == judged.build


def test_a_build_says_its_time_at_the_typical_extent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece is held against Inductor where it typically is, and the kernel that serves it there counts."""

    class Built(RangeBuild):
        @property
        def record(self) -> Any:
            return SimpleNamespace(ends={"n": (16, 48, 256)}, predicted_us=(1.0, 5.0, 9.0), serves=(0, 1, 0))

    def build_all(wanted: Any, _machine: str, _workers: int) -> list[Any]:
        assert all(isinstance(one.graph, SymbolicGraph) for one in wanted)
        return [Built({}, {}, 0.0) for _ in wanted]

    monkeypatch.setattr(choose, "build_all", build_all)
    model = layer()
    found = agree(model, rows, {0: 0}, (33, 16, 200), (2, 256), execute="simulation")
    assert [found.judged[piece.key].ours_us for piece in found.taken] == [5.0]


def test_each_extent_has_the_kernel_that_serves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = layer()
    (piece,) = agree(model, rows, {0: 0}, (16,), (8, 100)).taken
    used: list[object] = []

    class Built(RangeBuild):
        record = SimpleNamespace(ends={"n": (16, 48, 100)}, serves=(0, 1, 0))  # type: ignore[assignment]
        module = SimpleNamespace(KERNELS=("few", "many"))  # type: ignore[assignment]

    def by(kernel: object, graph: Graph) -> Any:
        used.append((kernel, graph.type_of(graph.outputs[0]).shape[0]))
        return lambda *_tensors: None

    monkeypatch.setattr(execute, "_by", by)
    launch = execute.by_kernel(piece, Built({}, {}, 0.0))
    assert isinstance(launch, Calls)
    for extent in (8, 16, 17, 48, 49, 100, 16, 48):
        (x,) = rows(extent)
        y = empty(launch.layouts([x.shape] * 3), "cpu")
        launch(*_given(piece, {"x": x, "weight": model.weight, "bias": model.bias}), *y)
    # A kernel of an extent is made ready once.
    assert used == [("few", 8), ("few", 16), ("many", 17), ("many", 48), ("few", 49), ("few", 100)]
