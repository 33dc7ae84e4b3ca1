"""Copies that repeat elements: of keys for a group of query heads they are read in place, whatever others need."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.copies import Copies  # noqa: E402
from wsopt.torch.report import report_of  # noqa: E402
from wsopt.torch.values import Atom, Untaken  # noqa: E402

B = torch.bfloat16
HEADS, GROUP, TOKENS, WIDTH = 2, 4, 16, 64

_fresh = pytest.fixture(autouse=True)(fresh)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """A rotary embedding, whose angles are of half of the width, twice."""
    left, right = x[..., : WIDTH // 2], x[..., WIDTH // 2 :]
    return x * cos + torch.cat((-right, left), -1) * sin


def repeated(x: Tensor) -> Tensor:
    """Keys as those of a group of query heads each."""
    return x[:, :, None].expand(1, HEADS, GROUP, TOKENS, WIDTH).reshape(1, HEADS * GROUP, TOKENS, WIDTH)


def attention(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, angles: Tensor) -> Tensor:
    both = torch.cat((angles, angles), -1)
    cos, sin = both.cos().to(B), both.sin().to(B)
    q, k, v = ((x @ w).view(1, TOKENS, -1, WIDTH).transpose(1, 2) for w in (wq, wk, wv))
    q, k = turned(q, cos, sin), turned(k, cos, sin)
    return functional.scaled_dot_product_attention(q, repeated(k), repeated(v), is_causal=True)


def test_keys_are_not_repeated_where_angles_are() -> None:
    shapes = (
        (1, TOKENS, 512),
        (512, HEADS * GROUP * WIDTH),
        *[(512, HEADS * WIDTH)] * 2,
    )
    x, *weights = (torch.randn(shape, dtype=B) / 16 for shape in shapes)
    args = (x, *weights, torch.randn(TOKENS, WIDTH // 2))
    with watching() as seen, torch.no_grad():
        found = with_pieces(attention)(*args)
    assert torch.allclose(found.float(), attention(*args).float(), rtol=2e-2, atol=2e-2)
    assert report_of(seen).share == 1
    (kernel,) = (one.graph for one in seen[0].taken if any(node.op == "softmax" for node in one.graph.nodes))
    elements = sorted(torch.Size(one.type.shape).numel() for one in kernel.inputs)
    own = HEADS * TOKENS * WIDTH
    assert elements == [own, own, GROUP * own]
    # A rotary embedding of queries is one kernel, which reads the angles as wide as the queries.
    assert any(
        [node.op for node in one.graph.nodes].count("mul") == 2
        and any(n.op == "concat" for n in one.graph.nodes)
        for one in seen[0].taken
    )


def test_keys_of_two_attentions_are_not_repeated() -> None:
    """What repeats them is all that reads what turns them, and stands for no result of a kernel."""

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = (repeated(functional.rms_norm(one, (WIDTH,)).transpose(1, 2)) for one in (k, v))
        first = functional.scaled_dot_product_attention(q, keys, values)
        return functional.scaled_dot_product_attention(torch.tanh(first), keys, values)

    q = torch.randn(1, HEADS * GROUP, TOKENS, WIDTH, dtype=B)
    k, v = (torch.randn(1, TOKENS, HEADS, WIDTH, dtype=B) for _ in range(2))
    with watching() as seen, torch.no_grad():
        found = with_pieces(model)(q, k, v)
    assert torch.allclose(found.float(), model(q, k, v).float(), rtol=2e-2, atol=2e-2)
    assert all(one.dims is None for piece in seen[0].taken for one in piece.inputs)
    expanded = seen[0].lowered.graph.find_nodes(op="call_function", target=torch.ops.aten.expand.default)
    assert not expanded


def test_kinds_are_left_one_by_one() -> None:
    keys, angles = ((Atom(2), Atom(4, repeated=True)),), ((Atom(2, repeated=True), Atom(32)),)
    values = ((Atom(2), Atom(4, repeated=True), Atom(1)),)  # which are repeated as keys are
    copies = Copies()
    assert not list(copies.others())
    copies.see_through(keys)
    copies.see_through(values)
    assert [(one.all_stay, one.stay) for one in copies.others()] == [(True, frozenset())]
    copies.see_through(angles)
    every, *apart = copies.others()
    assert every.all_stay
    assert [one.stay for one in apart] == [{((4,),)}, {((2,),)}]
    apart[0].see_through(angles)
    for left, kind in ((apart[0], keys), (every, angles)):
        with pytest.raises(Untaken, match="repeats elements"):
            left.see_through(kind)
