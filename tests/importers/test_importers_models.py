"""Small random models, exported to ONNX and by torch.export, become graphs that agree with torch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from wsopt.errors import InputError, LoweringError  # noqa: E402
from wsopt.graph.reference import evaluate, relative_error  # noqa: E402
from wsopt.importers.exported import import_exported  # noqa: E402
from wsopt.importers.model import Imported  # noqa: E402

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 32,
}
X = torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(0))


class OfEmbeddings(torch.nn.Module):
    """A language model from its embeddings on."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(inputs_embeds=x).last_hidden_state


class Block(torch.nn.Module):
    """A norm, an attention with a causal mask, and a feed-forward layer; two results."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(64, dtype=dtype)
        self.inner = torch.nn.Linear(64, 128, dtype=dtype)
        self.outer = torch.nn.Linear(128, 64, dtype=dtype)

    def forward(self, x: Any) -> Any:
        y = self.outer(torch.nn.functional.gelu(self.inner(self.norm(x)))) + x
        q = y.view(*x.shape[:2], 2, 32).transpose(1, 2)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        return mixed.transpose(1, 2).reshape(x.shape), torch.softmax(y, 1)


def made(model: Any) -> Any:
    torch.manual_seed(0)
    return model().eval()


def transformer(name: str) -> Any:
    transformers = pytest.importorskip("transformers", reason="the models are those of transformers")
    if name == "bert":
        return made(lambda: OfEmbeddings(transformers.BertModel(transformers.BertConfig(**SMALL))))
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, use_cache=False)
    return made(lambda: OfEmbeddings(transformers.LlamaModel(config)))


def exported_to_onnx(model: Any, path: Path, *, dynamo: bool) -> None:
    pytest.importorskip("onnx")
    if dynamo:
        pytest.importorskip("onnxscript", reason="torch's newer exporter needs it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (X,), path, dynamo=dynamo, input_names=["x"], output_names=["y"], verbose=False
        )


def saved(model: Any, path: Path, x: Any, shapes: Any = None) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(model, (x,), dynamic_shapes=shapes), path)
    return path


def agree(found: Imported, model: Any, x: Any, within: float) -> None:
    """The graph's results on `x` are the model's."""
    (name,) = (one.name for one in found.graph.inputs if not one.constant)
    given = x.float().numpy().astype(found.graph.type_of(name).dtype.numpy)
    actual = evaluate(found.graph, {name: given, **found.contents()})
    with torch.no_grad():
        expected = model(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for one, other in zip(actual.values(), expected, strict=True):
        assert relative_error(one.astype(np.float32), other.float().numpy()) < within


@pytest.mark.parametrize(("name", "dynamo"), [("bert", False), ("llama", True)])
def test_a_language_model_in_onnx(tmp_path: Path, name: str, dynamo: bool) -> None:
    from wsopt.importers.onnx_model import import_onnx

    model, path = transformer(name), tmp_path / f"{name}.onnx"
    exported_to_onnx(model, path, dynamo=dynamo)
    found = import_onnx(path, {})
    agree(found, model, X, 1e-6)
    ops = [node.op for node in found.graph.nodes]
    assert ops.count("softmax") == 1
    assert ops.count("matmul") == (9 if name == "llama" else 8)
    # The causal mask is a comparison of indices again, and no array of numbers.
    assert ops.count("less_equal") == (name == "llama")


def test_a_language_model_of_torch_export(tmp_path: Path) -> None:
    model = transformer("bert")
    found = import_exported(saved(model, tmp_path / "bert.pt2", X), {})
    agree(found, model, X, 1e-6)
    # Positions are known, so that looking them up is a part of the table.
    assert [node.op for node in found.graph.nodes].count("slice") == 2


@pytest.mark.parametrize(
    ("dtype", "within"), [(torch.float32, 1e-6), (torch.bfloat16, 5e-3), (torch.float16, 1e-3)]
)
def test_a_file_of_torch_export(tmp_path: Path, dtype: Any, within: float) -> None:
    model = made(lambda: Block(dtype))
    found = import_exported(saved(model, tmp_path / "block.pt2", X.to(dtype)), {})
    agree(found, model, X.to(dtype), within)
    constants = {one.name: found.origins[one.name] for one in found.graph.inputs if one.constant}
    assert set(constants.values()) == set(model.state_dict())
    assert constants["norm_weight"] == "norm.weight"


def test_open_extents_of_a_file_of_torch_export(tmp_path: Path) -> None:
    model = made(lambda: Block(torch.float32))
    open_ones = ({0: torch.export.Dim("batch", min=1, max=8), 1: torch.export.Dim("tokens", min=2, max=64)},)
    path = saved(model, tmp_path / "block.pt2", X, open_ones)
    with pytest.raises(InputError) as caught:
        import_exported(path, {})
    asked: Mapping[str, int] = dict(
        zip(
            (line.rpartition("--dim ")[2].partition("=")[0] for line in str(caught.value).splitlines()),
            (3, 40),
            strict=True,
        )
    )
    agree(import_exported(path, asked), model, torch.randn(3, 40, 64), 1e-6)
    with pytest.raises(InputError, match="the model does not take these extents"):
        import_exported(path, dict.fromkeys(asked, 999))


class JoinedAndChosen(torch.nn.Module):
    """Heads joined with what all of them share, and tokens at places that are known."""

    def __init__(self, places: list[int]) -> None:
        super().__init__()
        self.places = places

    def forward(self, x: Any) -> Any:
        heads = x.view(2, 16, 4, 16).transpose(1, 2)
        shared = torch.sin(x[:, None, :, :8]).expand(-1, 4, -1, -1)
        return torch.cat([heads, shared], -1)[:, :, self.places]


@pytest.mark.parametrize("places", [[-1], [3, 3], [2, 3, 4]])
def test_what_is_repeated_is_joined_and_known_places_are_read(tmp_path: Path, places: list[int]) -> None:
    model = JoinedAndChosen(places)
    agree(import_exported(saved(model, tmp_path / "joined.pt2", X), {}), model, X, 1e-6)


class Positions(torch.nn.Module):
    """Positions and a mask that are buffers, an input of 64 bits, and an operation that no graph has."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.bad = bad
        self.register_buffer("position_ids", torch.arange(32)[None])
        self.register_buffer("table", torch.tensor([3, 1, 4, 1, 5, 9, 2, 6]))

    def forward(self, x: Any, lengths: Any) -> Any:
        ids = self.position_ids[:, : x.shape[1]]
        y = torch.where(ids < lengths[:, None], x * self.table, 0.0)
        return (torch.cumprod(y, 1), torch.sort(x)[0], torch.exp(y)) if self.bad else (y,)


@pytest.mark.parametrize("bad", [False, True])
def test_integers_of_a_file_of_torch_export(tmp_path: Path, bad: bool) -> None:
    x, lengths, path = torch.randn(2, 8), torch.tensor([5, 3]), tmp_path / "positions.pt2"
    torch.export.save(torch.export.export(Positions(bad), (x, lengths)), path)
    if bad:
        with pytest.raises(LoweringError) as caught:
            import_exported(path, {})
        lines = str(caught.value).splitlines()
        assert [line.partition(": aten.")[2].partition(".")[0] for line in lines] == ["cumprod", "sort"]
        return
    found = import_exported(path, {})
    assert [str(one.type) for one in found.graph.inputs] == ["f32[2, 8]", "i32[2]", "i32[8]"]
    assert "iota" in [node.op for node in found.graph.nodes]
    (actual,) = evaluate(
        found.graph, {"x": x.numpy(), "lengths": lengths.numpy().astype(np.int32), **found.contents()}
    ).values()
    np.testing.assert_array_equal(actual, Positions(False)(x, lengths)[0].numpy())


def test_a_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.pt2"
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"a\.pt2: is no file of torch.export"):
        import_exported(path, {})
