"""Times models of `transformers` under compilers of torch, in turns, on a GPU.

`python -m wsopt.torch.timed FILE MODEL... --with COMPILER...`. A MODEL is `llama:1x2048` (batch and tokens),
`bert:32x512` or `vit:32` (images): random weights, bf16, a forward pass without a cache. COMPILERs are `eager`,
`inductor`, `max-autotune`, and this project's backend as `predicted`, `all` or `measure` (its option `take`). All are
called plainly, and replayed out of CUDA graphs. FILE is written after each model.
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
    "models of transformers (Llama: 4 layers, hidden 4096, inner 14336, 32 heads, 8 of keys; BERT-large; ViT-L/16 of "
    "224 x 224), bf16, random weights, no cache; contestants in turns, microseconds of a forward pass by round; "
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


def forward(name: str) -> tuple[Callable[[Callable[..., Any]], torch.Tensor], torch.nn.Module]:
    """How a model, or what a compiler makes of it, is called on inputs that stay, and the model.

    Raises RequirementError for a name that is none.
    """
    kind, _, size = name.partition(":")
    if kind not in _MODELS:
        raise RequirementError(f"{kind} is no model that is timed here; {', '.join(_MODELS)} are")
    torch.manual_seed(0)
    key, given, model = _MODELS[kind](*(int(one) for one in size.split("x")))
    return (lambda module: module(**{key: given}).last_hidden_state), model.eval()


def _transformers() -> Any:
    return importlib.import_module("transformers")


def _on_gpu(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """A model of bf16 parameters that are made on the GPU."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return make()
    finally:
        torch.set_default_dtype(before)


def _llama(batch: int, tokens: int) -> tuple[str, torch.Tensor, torch.nn.Module]:
    t = _transformers()
    config = t.LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8,
        num_hidden_layers=4, use_cache=False,
    )  # fmt: skip
    ids = torch.randint(0, config.vocab_size, (batch, tokens), device="cuda")
    return "input_ids", ids, _on_gpu(lambda: t.LlamaModel(config))


def _bert(batch: int, tokens: int) -> tuple[str, torch.Tensor, torch.nn.Module]:
    t = _transformers()
    config = t.BertConfig(
        hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24
    )
    ids = torch.randint(0, config.vocab_size, (batch, tokens), device="cuda")
    return "input_ids", ids, _on_gpu(lambda: t.BertModel(config, add_pooling_layer=False))


def _vit(batch: int) -> tuple[str, torch.Tensor, torch.nn.Module]:
    t = _transformers()
    config = t.ViTConfig(
        hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24
    )
    images = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    return "pixel_values", images, _on_gpu(lambda: t.ViTModel(config, add_pooling_layer=False))


_MODELS: dict[str, Callable[..., tuple[str, torch.Tensor, torch.nn.Module]]] = {
    "llama": _llama,
    "bert": _bert,
    "vit": _vit,
}


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
