"""Random small models of transformers: with pieces they compute what they compute without a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="the models are those of transformers")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

from torch_pieces import Counted, fresh, with_pieces  # noqa: E402

from wsopt.runtime.torch_reference import relative_error  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.report import report_of  # noqa: E402

WIDE = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL = {**WIDE, "vocab_size": 512, "max_position_embeddings": 64}
WORDS = {"vocab_size": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
T = transformers


def tokens(**more: Any) -> dict[str, Any]:
    return {"input_ids": torch.randint(5, 512, (2, 16)), **more}


def decoder(name: str, **more: Any) -> Callable[[], tuple[Any, dict[str, Any]]]:
    def made() -> tuple[Any, dict[str, Any]]:
        config = getattr(T, f"{name}Config")(**SMALL, num_key_value_heads=2, **more)
        return getattr(T, f"{name}Model")(config), tokens(use_cache=False)

    return made


def bert() -> tuple[Any, dict[str, Any]]:
    return T.BertModel(T.BertConfig(**SMALL)), tokens()


def padded_bert() -> tuple[Any, dict[str, Any]]:
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 9:] = 0
    return T.BertModel(T.BertConfig(**SMALL)), tokens(attention_mask=mask)


def gpt2() -> tuple[Any, dict[str, Any]]:
    config = T.GPT2Config(n_embd=128, n_layer=2, n_head=4, n_positions=64, **WORDS)
    return T.GPT2Model(config), tokens(use_cache=False)


def t5() -> tuple[Any, dict[str, Any]]:
    config = T.T5Config(d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, **WORDS)
    return T.T5EncoderModel(config), tokens()


def vit() -> tuple[Any, dict[str, Any]]:
    config = T.ViTConfig(**WIDE, image_size=32, patch_size=8)
    return T.ViTModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def whisper() -> tuple[Any, dict[str, Any]]:
    layers = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in {"layers": 2, "attention_heads": 4, "ffn_dim": 256}.items()
    }
    sizes = {"d_model": 128, "max_source_positions": 32, "num_mel_bins": 16, "decoder_start_token_id": 1}
    config = T.WhisperConfig(**layers, **sizes, **WORDS)
    return T.WhisperModel(config).get_encoder(), {"input_features": torch.randn(2, 16, 64)}


MODELS = {
    "llama": decoder("Llama"),
    "qwen2": decoder("Qwen2"),
    "mistral": decoder("Mistral", sliding_window=8),
    "gemma2": decoder("Gemma2", head_dim=32),
    "bert": bert,
    "bert, padded": padded_bert,
    "gpt2": gpt2,
    "t5": t5,
    "vit": vit,
    "whisper": whisper,
}


def in_type(inputs: dict[str, Any], dtype: Any) -> dict[str, Any]:
    return {
        name: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for name, x in inputs.items()
    }


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_pieces_computes_the_same(name: str) -> None:
    fresh()
    model, inputs = MODELS[name]()
    model = model.eval().to(torch.bfloat16)
    with torch.no_grad():
        plain = model(**in_type(inputs, torch.bfloat16))[0]
        with watching() as seen:
            compiled = with_pieces(model)
            found = compiled(**in_type(inputs, torch.bfloat16))[0]
        exact = model.double()(**in_type(inputs, torch.float64))[0]
    assert found.dtype is plain.dtype
    assert found.stride() == plain.stride()
    # Both round; ours no worse than the other by more than chance.
    assert relative_error(found, exact) < 1.25 * relative_error(plain, exact)
    report = report_of(seen)
    assert report.share == 1.0, report
    kinds = {line.text.split(" -> ")[0] for line in report.taken}
    assert any(text.count("matmul") == 2 and ("softmax" in text or "exp" in text) for text in kinds), report


RANGING = [
    ("llama", (1,), 0.999),
    ("qwen2", (1,), 0.999),
    ("mistral", (1,), 0.999),
    ("gemma2", (1,), 0.999),
    ("bert", (1,), 0.999),
    ("vit", (0,), 0.99),
    ("bert", (0, 1), 0.999),
    ("llama", (0, 1), 0.999),
]
"""Models with the axes of their input that change, and the least share of their operations that is in pieces."""


@pytest.mark.parametrize(("name", "axes", "least"), RANGING)
def test_one_compilation_serves_every_extent_of_a_range(
    name: str, axes: tuple[int, ...], least: float
) -> None:
    fresh()
    model, given = MODELS[name]()
    ((key, first), *more) = given.items()
    model = model.eval().to(torch.bfloat16)
    fast = Counted(model)
    with torch.no_grad(), watching() as seen:
        for extent in (24, 7, 2, 33):
            shape = [extent + place if place in axes else one for place, one in enumerate(first.shape)]
            x = (
                torch.randn(shape).to(torch.bfloat16)
                if first.is_floating_point()
                else torch.randint(5, 512, shape)
            )
            for axis in axes:
                torch._dynamo.mark_dynamic(x, axis, min=2, max=64)
            found, plain = (
                of(**{key: x}, **dict(more)).last_hidden_state.float() for of in (fast.call, model)
            )
            assert relative_error(found, plain) < 2e-2
    assert fast.times == 1
    report = report_of(seen)
    assert report.share > least
    assert f"n from {2 ** len(axes)} to {64 ** len(axes):,}" in str(report)
