"""Layers that are alike are asked about once, and what is said of one is true of the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

from torch import Tensor, nn  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.torch import compiler, cutting  # noqa: E402
from wsopt.torch.cutting import Way, cut  # noqa: E402
from wsopt.torch.forms import Form, Forms  # noqa: E402
from wsopt.torch.later import copied  # noqa: E402
from wsopt.torch.piece import Piece  # noqa: E402
from wsopt.torch.pieces import piece_of  # noqa: E402
from wsopt.torch.values import Untaken  # noqa: E402

B = torch.bfloat16


class Layer(nn.Module):
    """Attention and two products, with norms, as an encoder has them; `rotates` also turns queries by positions."""

    def __init__(self, width: int, heads: int, *, rotates: bool) -> None:
        super().__init__()
        self.heads, self.rotates = heads, rotates
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        parts = self.three(self.norm(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        if self.rotates:
            first, second = q.chunk(2, -1)
            q = torch.cat([-second, first], -1) + q
        seen = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(nn.functional.gelu(self.wide(self.last(x))))


def layers(count: int, *, rotates: bool = False) -> Callable[[], tuple[nn.Module, Tensor]]:
    def made() -> tuple[nn.Module, Tensor]:
        parts = nn.ModuleList(Layer(64, 2, rotates=rotates) for _ in range(count)).to(B)

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.parts = parts

            def forward(self, x: Tensor) -> Tensor:
                place = torch.arange(x.shape[1])
                mask = place[:, None] >= place
                for part in self.parts:
                    x = part(x, mask)
                return x

        return Model(), torch.randn(2, 16, 64, dtype=B)

    return made


def family(name: str) -> Callable[[], tuple[nn.Module, Tensor]]:
    """A small model of a family of transformers."""

    def made() -> tuple[nn.Module, Tensor]:
        transformers = pytest.importorskip("transformers", reason="the model is one of transformers")
        sizes = {
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
        }
        words = {} if name == "vit" else {"vocab_size": 512, "max_position_embeddings": 64}
        small = {"image_size": 32, "patch_size": 8} if name == "vit" else {}
        groups = {"num_key_value_heads": 2, "use_cache": False} if name == "llama" else {}
        config = transformers.CONFIG_MAPPING[name](**sizes, **words, **small, **groups)
        model = transformers.AutoModel.from_config(config).to(B)
        return model, torch.randn(2, 3, 32, 32, dtype=B) if name == "vit" else torch.randint(5, 500, (2, 16))

    return made


def ways_of(make: Callable[[], tuple[nn.Module, Tensor]], *, grad: bool = False) -> list[Way]:
    """The ways in which the graphs of a model's call were cut, forward and, with `grad`, backward too."""
    fresh()
    seen: list[Way] = []

    def kept(module: Any, *args: Any, **how: Any) -> tuple[Way, ...]:
        seen.extend(cutting.ways(copied(module), *args, **how))  # the graph itself is changed later
        return cutting.ways(module, *args, **how)

    model, x = make()
    with pytest.MonkeyPatch.context() as patch, torch.set_grad_enabled(grad):
        patch.setattr(compiler, "ways", kept)
        result = with_pieces(model.train(grad))(x)
        if grad:
            result.float().sum().backward()
    for way in seen:
        cut(way, {})
    return seen


def told(piece: Piece | Untaken) -> Any:
    """What is the same of pieces that are alike."""
    if isinstance(piece, Untaken):
        return None
    inputs = [(one.shape, one.dims) for one in piece.inputs]
    return piece.graph, inputs, piece.orders, piece.fixed, len(piece.outputs)


def bytes_told(piece: Piece) -> Any:
    """What is the same of all ways to say groups, by which a cut weighs them."""
    return piece.bytes_in, [nbytes for _, nbytes in piece.bytes_by_output], piece.is_statistic


def asked(way: Way, groups: frozenset[str]) -> Piece | Untaken:
    """What is said of groups if nothing is known of others."""
    try:
        return Way(way.lowered, way.wiring, way.oracle).piece(groups)
    except Untaken as reason:
        return reason


MODELS = {
    "layers": (layers(3), False),
    "layers in training": (layers(2), True),
    "layers that rotate": (layers(2, rotates=True), False),
    "bert": (family("bert"), False),
    "vit": (family("vit"), False),
    "llama": (family("llama"), False),
}


@cache
def ways_of_model(name: str) -> list[Way]:
    make, grad = MODELS[name]
    return ways_of(make, grad=grad)


@pytest.mark.parametrize("name", MODELS)
def test_sets_that_are_alike_are_the_same_piece(name: str) -> None:
    for way in ways_of_model(name):
        for groups, form in way.forms.known.items():
            found, known = asked(way, groups), way.known[form.number]
            assert isinstance(found, Untaken) == isinstance(known, Untaken), sorted(groups)
            if isinstance(found, Piece) and isinstance(known, Piece):
                assert told(found) == told(way.alike(groups)), sorted(groups)
                assert bytes_told(found) == bytes_told(known)
                assert tuple(node.name for node in found.outputs) == form.outputs


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_is_cut_as_if_every_set_were_asked_about(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Forms.of
    apart: dict[frozenset[str], int] = {}

    def alone(self: Forms, groups: frozenset[str]) -> Form:
        return Form(apart.setdefault(groups, len(apart)), of(self, groups).outputs)

    for way in ways_of_model(name):
        once = cut(way, {})
        turned = {once.pieces[0].key: "", once.pieces[-1].work: "turned down"} if once.pieces else {}
        again = cut(way, turned)
        with monkeypatch.context() as patch:
            patch.setattr(Forms, "of", alone)
            fresh = Way(way.lowered, way.wiring, way.oracle)
            assert (cut(fresh, {}), cut(fresh, turned)) == (once, again)
            assert len(fresh.known) == len(apart)
        apart.clear()


def test_more_layers_ask_hardly_more() -> None:
    (two,), (eight,) = ways_of(layers(2)), ways_of(layers(8))
    assert len(eight.forms.known) > 3 * len(two.forms.known)
    assert len(eight.known) <= len(two.known) + 16


def test_other_ways_to_say_groups_are_made_where_the_first_has_no_kernel() -> None:
    (way,) = ways_of(layers(2))
    fresh = Way(way.lowered, way.wiring, way.oracle)
    made: list[tuple[Any, dict[str, Any]]] = []

    def noted(wiring: Any, nodes: Any, **how: Any) -> Piece:
        made.append((nodes, how))
        return piece_of(wiring, nodes, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "piece_of", noted)
        cut(fresh, {})
    others = [nodes for nodes, how in made if how != {"laid": True, "packs": False}]
    assert 0 < len(others) < len(made) / 4
    assert all(way.oracle.refusal(piece_of(way.wiring, nodes, laid=True)) for nodes in others)
    assert len(fresh._alike) < len(fresh.known)  # of the others nothing but bytes was wanted
