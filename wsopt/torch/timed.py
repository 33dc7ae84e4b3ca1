"""Times models of `transformers` under compilers of torch, in turns, on a GPU.

`python -m wsopt.torch.timed FILE MODEL... --with COMPILER...`. A MODEL is a type of `transformers`, fields of its
configuration, and a size: `qwen2,num_hidden_layers=4:1x2048` (batch and tokens), `llama:16x1@8192` (the same behind
a static cache, which has so many with them), `whisper:8` (recordings), `vit:32` (images). Three types have the
fields of a published size to begin with (`_FIELDS`). Weights are random and bf16, and a call is a forward pass, else
without a cache; of encoder and decoder it is the encoder. COMPILERs are `eager`, `inductor`, `max-autotune`, and
this project's backend as `predicted`, `all` or `measure` (its option `take`). All are called plainly, and replayed
out of CUDA graphs. FILE is written after each model.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from wsopt.bench.bench_worker import machine_facts, version_facts
from wsopt.bench.cuda_clock import CudaClock, captured
from wsopt.bench.timing import Contestant, TimingOptions, measure
from wsopt.errors import RequirementError
from wsopt.torch.compiler import backend

FORMAT = "wsopt.models/2"
HOW = (
    "models of transformers (llama: 4 layers, hidden 4096, inner 14336, 32 heads, 8 of keys; bert: BERT-large; vit: "
    "ViT-L/16 of 224 x 224; else as named; @: tokens of a static cache, with the input's), bf16, random weights; "
    "contestants in turns, microseconds of a forward pass by round; "
    "graph: replays of a CUDA graph; first_s: seconds of the first call; error: norm of the difference to eager by "
    "eager's norm"
)
_LIMIT_S = 30.0
_TIMING = TimingOptions(rounds=11, sample_ms=30.0, warm_up_ms=200.0)

Model = Callable[[], torch.Tensor]
"""A forward pass on inputs that stay."""


def main() -> None:
    """Time every model that was asked for, and write the file given as the first argument after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--with", dest="compilers", nargs="+", default=["inductor", "predicted"])
    parser.add_argument("--first-only", action="store_true", help="compile, and call once")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("wsopt.torch").setLevel(logging.INFO)
    rows: list[dict[str, object]] = []
    for name in given.models:
        torch._dynamo.reset()
        rows.append({"model": name} | timed(name, given.compilers, first_only=given.first_only))
        document = {
            "format": FORMAT,
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "machine": machine_facts(),
            "versions": version_facts(),
            "how": HOW,
            "rows": rows,
        }
        given.file.write_text(json.dumps(document, indent=0) + "\n", encoding="utf-8")


def timed(name: str, compilers: list[str], *, first_only: bool) -> dict[str, object]:
    """Seconds of first calls, errors, and microseconds of a pass by round, by compiler."""
    call, module = forward(name)
    expected = call(module)
    passes: dict[str, Model] = {}
    first: dict[str, float] = {}
    error: dict[str, float] = {}
    for compiler in compilers:
        passes[compiler] = functools.partial(call, compiled(module, compiler))
        begun = time.monotonic()
        found = passes[compiler]()
        torch.cuda.synchronize()
        first[compiler] = round(time.monotonic() - begun, 1)
        error[compiler] = _distance(found, expected)
        print(
            f"{name} {compiler}: first call {first[compiler]} s, error {error[compiler]:.1e}",
            file=sys.stderr,
            flush=True,
        )
    told: dict[str, object] = {"first_s": first, "error": error}
    return told if first_only else told | _microseconds(name, passes)


def compiled(module: torch.nn.Module, compiler: str) -> Any:
    """The module under a compiler. Raises RequirementError for a name that is none."""
    match compiler:
        case "eager":
            return module
        case "inductor":
            return torch.compile(module, dynamic=False)
        case "max-autotune":
            return torch.compile(module, dynamic=False, mode="max-autotune-no-cudagraphs")
        case "predicted" | "all" | "measure":
            return torch.compile(module, dynamic=False, backend=backend, options={"take": compiler})
    raise RequirementError(
        f"{compiler} is no compiler; eager, inductor, max-autotune, predicted, all and measure are"
    )


def _microseconds(name: str, passes: dict[str, Model]) -> dict[str, object]:
    clock, found = CudaClock(_LIMIT_S), {}
    plain = [Contestant(compiler, (one,)) for compiler, one in passes.items()]
    graphs = [captured(one, 1)[0] for one in plain]
    for way, contestants in (("plain_us", plain), ("graph_us", graphs)):
        times = measure(contestants, clock, _TIMING)
        found[way] = {one: [round(us, 1) for us in samples] for one, samples in times.items()}
        medians = {one: sorted(samples)[len(samples) // 2] for one, samples in times.items()}
        print(f"{name} {way} {medians}", file=sys.stderr, flush=True)
    return dict(found)


def _distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


# --- models -----------------------------------------------------------------------------------------------

_FIELDS: dict[str, dict[str, int]] = {
    "llama": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 4,
    },
    "bert": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
    },
    "vit": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
    },
}
"""What a type's configuration has unless a MODEL says otherwise: Llama-3-8B's, BERT-large's and ViT-L/16's."""


def forward(name: str) -> tuple[Callable[[Callable[..., Any]], torch.Tensor], torch.nn.Module]:
    """How a model, or what a compiler makes of it, is called on inputs that stay, and the model.

    Raises RequirementError for a type that `transformers` does not have, a field that is none, and a size that does
    not fit the type.
    """
    kind, fields, size = _told(name)
    torch.manual_seed(0)
    model = _model(kind, _FIELDS.get(kind, {}) | fields)
    size, _, cached = size.partition("@")
    extents = tuple(int(one) for one in size.split("x"))
    key = model.main_input_name
    given = {key: _input(name, key, model.config, extents)}
    if cached:
        return _behind_cache(model.config, given, int(cached), *extents), model.eval()
    return (lambda module: module(**given).last_hidden_state), model.eval()


def _told(name: str) -> tuple[str, dict[str, object], str]:
    """The type, the fields and the size that a MODEL names, with or without spaces behind its commas."""
    told, _, size = name.partition(":")
    kind, *fields = (one.strip() for one in told.split(","))
    return kind, dict(_field(name, one) for one in fields), size


def _field(name: str, told: str) -> tuple[str, object]:
    key, given, value = told.partition("=")
    if not given:
        raise RequirementError(f"{name}: {told} is no field and its value, as num_hidden_layers=4 is")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def _model(kind: str, fields: dict[str, Any]) -> Any:
    """A model of bf16 parameters that are made on the GPU; of encoder and decoder, the encoder."""
    transformers: Any = importlib.import_module("transformers")
    if kind not in transformers.CONFIG_MAPPING:
        raise RequirementError(f"{kind} is no type of transformers {transformers.__version__}, as llama is")
    known = transformers.CONFIG_MAPPING[kind]()
    if unknown := [one for one in fields if not hasattr(known, one)]:
        raise RequirementError(f"{kind} has no field {', '.join(unknown)}")
    config = transformers.CONFIG_MAPPING[kind](**fields)
    config.use_cache = False
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model = transformers.AutoModel.from_config(config)
    finally:
        torch.set_default_dtype(before)
    return model.get_encoder() if getattr(config, "is_encoder_decoder", False) else model


def _behind_cache(
    config: Any, given: dict[str, Any], cached: int, batch: int, tokens: int
) -> Callable[[Callable[..., Any]], torch.Tensor]:
    """A call with a static cache whose last `tokens` are the input's, and the others random. A call fills these of
    the cache anew, and all calls see the same numbers.
    """
    cache = importlib.import_module("transformers").StaticCache(config=config, max_cache_len=cached)
    width = config.hidden_size // config.num_attention_heads
    device = torch.device("cuda")
    cache.early_initialization(batch, config.num_key_value_heads, width, torch.bfloat16, device)
    for layer in cache.layers:
        layer.keys.normal_()
        layer.values.normal_()
    behind = cached - tokens
    places = torch.arange(behind, cached, device=device).unsqueeze(0)

    def call(module: Callable[..., Any]) -> torch.Tensor:
        for layer in cache.layers:
            if hasattr(layer, "cumulative_length"):  # it counts calls, from transformers 5 on
                layer.cumulative_length.fill_(behind)
        return module(**given, position_ids=places, past_key_values=cache, use_cache=True).last_hidden_state

    return call


def _input(name: str, key: str, config: Any, extents: tuple[int, ...]) -> torch.Tensor:
    """A random input of the model: tokens, images, or spectra of recordings."""
    match key, extents:
        case "input_ids", (batch, tokens):
            return torch.randint(0, config.vocab_size, (batch, tokens), device="cuda")
        case "pixel_values", (batch,):
            return _noise(batch, config.num_channels, config.image_size, config.image_size)
        case "input_features", (batch,):
            return _noise(batch, config.num_mel_bins, 2 * config.max_source_positions)
    raise RequirementError(
        f"{name}: a size is batch and tokens for a model of text, 1x2048, and else a number, 32"
    )


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
