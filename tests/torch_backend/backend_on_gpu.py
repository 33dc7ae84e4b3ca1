"""Runs models of transformers with the backend's kernels on a GPU, and times them beside Inductor.

    python tests/torch_backend/backend_on_gpu.py [--take predicted|all|measure] [--json FILE] [MODEL...]

Needs torch, triton, transformers and the package with what it needs. Each model has two layers of a usual size,
random weights, and one batch. A line says how far the outputs are from those of f64 arithmetic, without a compiler
and with ours, and the median times in CUDA graphs. Ends with status 1 where rounding does not explain our distance.
`--smoke` runs small models on the CPU by the reference, so that the script itself can be tried anywhere.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import transformers as T

from wsopt.runtime.torch_reference import relative_error
from wsopt.torch import backend
from wsopt.torch.compiler import watching
from wsopt.torch.report import report_of

WORST = 1.25
"""Times the error of bf16 without a compiler, ours may have."""
ROUNDS, CALLS = 11, 5


def models(size: int) -> Iterator[tuple[str, Callable[[], tuple[Any, dict[str, Any]]]]]:
    """Models by name, `size` times as wide as the smallest, with inputs."""
    wide = {"hidden_size": 128 * size, "num_attention_heads": 2 * size, "num_hidden_layers": 2}
    text = {**wide, "intermediate_size": 448 * size, "vocab_size": 1024, "max_position_embeddings": 8192}
    rows = 64 * size

    def tokens(batch: int = 1, **more: Any) -> dict[str, Any]:
        return {"input_ids": torch.randint(5, 1024, (batch, rows)), **more}

    def decoder(name: str, **more: Any) -> Callable[[], tuple[Any, dict[str, Any]]]:
        def made() -> tuple[Any, dict[str, Any]]:
            config = getattr(T, f"{name}Config")(**text, num_key_value_heads=max(1, size // 2), **more)
            return getattr(T, f"{name}Model")(config), tokens(use_cache=False)

        return made

    yield "llama", decoder("Llama")
    yield "qwen2", decoder("Qwen2")
    yield "mistral", decoder("Mistral", sliding_window=rows // 2)
    yield "gemma2", decoder("Gemma2", head_dim=64)
    yield "bert", lambda: (T.BertModel(T.BertConfig(**text)), tokens(batch=8))
    yield (
        "vit",
        lambda: (
            T.ViTModel(T.ViTConfig(**wide, intermediate_size=512 * size, image_size=224, patch_size=16)),
            {"pixel_values": torch.randn(8, 3, 224, 224)},
        ),
    )


def placed(inputs: dict[str, Any], device: str, dtype: torch.dtype) -> dict[str, Any]:
    return {
        name: x.to(device, dtype if x.is_floating_point() else None) if isinstance(x, torch.Tensor) else x
        for name, x in inputs.items()
    }


def milliseconds(calls: list[Callable[[], Any]], device: str) -> list[float]:
    """Median milliseconds of each call, in turns."""
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, found in zip(calls, samples, strict=True):
            if device == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            if device == "cuda":
                torch.cuda.synchronize()
            found.append((time.perf_counter() - began) * 1e3 / CALLS)
    return [statistics.median(found) for found in samples]


def run(
    made: Callable[[], tuple[Any, dict[str, Any]]], device: str, options: dict[str, Any]
) -> dict[str, Any]:
    """The figures of a model."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, inputs = made()
    model = model.eval().to(device)
    given = placed(inputs, device, torch.bfloat16)
    with torch.no_grad():
        exact = model.double()(**placed(inputs, device, torch.float64))[0]
        model = model.to(torch.bfloat16)
        plain = model(**given)[0]
        settings = options.get("inductor", {})
        theirs = torch.compile(model, options=settings) if settings else torch.compile(model, backend="eager")
        theirs(**given)
        began = time.perf_counter()
        with watching() as seen:
            ours = torch.compile(model, backend=backend, options=options)
            found = ours(**given)[0].clone()
        seconds = time.perf_counter() - began
        for call in (ours, theirs) * 3:  # warm, and captured
            call(**given)
        times = milliseconds([lambda: ours(**given), lambda: theirs(**given)], device)
    report = report_of(seen)
    print(report)
    return {
        "error": relative_error(found, exact),
        "plain_error": relative_error(plain, exact),
        "ours_ms": times[0],
        "theirs_ms": times[1],
        "compile_s": seconds,
        "share": report.share,
        "pieces": sum(line.count for line in report.taken),
    }


def main() -> int:
    """Run the models that are named, or all; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--take", default="predicted", choices=("predicted", "all", "measure"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    asked = parser.parse_args()
    device = "cpu" if asked.smoke else "cuda"
    options: dict[str, Any] = {"take": asked.take, "inductor": {"triton.cudagraphs": True}}
    if asked.smoke:
        options = {"take": "all", "execute": "reference", "rest": "eager"}
    found = {}
    for name, made in models(1 if asked.smoke else 32):
        if not asked.models or name in asked.models:
            found[name] = one = run(made, device, options)
            told = ", ".join(f"{key} {value:.4g}" for key, value in one.items())
            print(f"{name}: {told}, {one['theirs_ms'] / one['ours_ms']:.3f} times as fast", flush=True)
    if asked.json:
        document = {"device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "models": found}
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    wrong = [name for name, one in found.items() if not one["error"] < WORST * one["plain_error"]]
    print(f"wrong: {', '.join(wrong)}" if wrong else "all right")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
