"""Small random models of many families of transformers: what the backend takes of them, and whether they agree.

    python tests/torch_backend/families.py docs/models/families.json [FAMILY...]

No GPU is needed: the pieces are computed by torch as their graphs say. A family's own configuration is made small
where it has a size of a usual name. Errors are relative, against the same model in f32; a row of a mixture of experts
that rounding sends to another expert is off by more, with the backend or without it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import transformers

import wsopt
from wsopt.runtime.torch_reference import relative_error
from wsopt.torch import backend
from wsopt.torch.compiler import watching
from wsopt.torch.report import report_of

_NAMES = """
llama mistral qwen2 qwen3 gemma gemma2 phi phi3 olmo2 starcoder2 stablelm granite cohere2 glm4 smollm3 exaone4
nemotron llama4_text mixtral qwen3_moe olmoe minimax falcon bloom mpt opt gpt2 gptj gpt_neox gpt_bigcode bert roberta
albert electra distilbert modernbert mpnet t5 umt5 bart mbart pegasus vit deit dinov2 beit dpt hubert wavlm mamba
"""
FAMILIES = tuple(_NAMES.split())
_SIZES: dict[str, int | bool] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "emb_dim"), 128),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "hidden_dim"), 256),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 256),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 64),
    **dict.fromkeys(("num_experts", "num_local_experts"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok"), 2),
    "head_dim": 32, "d_kv": 32, "moe_intermediate_size": 128, "rotary_dim": 16, "word_embed_proj_dim": 128,
    "vocab_size": 512, "image_size": 32, "patch_size": 8, "pad_token_id": 0,
}  # fmt: skip
_OPTIONS = {"execute": "reference", "rest": "eager", "take": "all"}


def small(family: str) -> Any:
    """A family's configuration with small sizes."""
    of = transformers.CONFIG_MAPPING[family]
    known = of().to_dict()
    return of(**{name: size for name, size in _SIZES.items() if name in known})


def inputs_of(model: Any) -> dict[str, Any]:
    """Inputs of 2 x 16 tokens, of two pictures, or of two sounds."""
    config, name = model.config, model.main_input_name
    if name == "pixel_values":
        return {name: torch.randn(2, 3, 32, 32)}
    if name == "input_values":
        return {name: torch.randn(2, 800)}
    found: dict[str, Any] = {name: torch.randint(5, 500, (2, 16))}
    if config.is_encoder_decoder:
        found["decoder_input_ids"] = torch.randint(5, 500, (2, 8))
    return found


def in_type(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Inputs whose floating-point numbers have a type."""
    return {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}


def row_of(family: str) -> dict[str, Any]:
    """What the backend takes of a family's small model, and the errors with it and without."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = transformers.AutoModel.from_config(small(family)).eval().to(torch.bfloat16)
    inputs = inputs_of(model)
    with torch.no_grad():
        plain = model(**in_type(inputs, torch.bfloat16))[0]
        with watching() as seen:
            found = torch.compile(model, backend=backend, options=_OPTIONS)(
                **in_type(inputs, torch.bfloat16)
            )[0]
        exact = model.float()(**in_type(inputs, torch.float32))[0]
    report = report_of(seen)
    return {
        "family": family,
        "share": round(report.share, 4),
        "kinds_of_pieces": len(report.taken),
        "error": float(f"{relative_error(found, exact):.2e}"),
        "error_without": float(f"{relative_error(plain, exact):.2e}"),
    }


def table(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The lines of the page's table: families of which all is taken in one, then one a family."""
    rows = list(rows)
    whole = [row["family"] for row in rows if row["share"] == 1]
    rest = sorted((row for row in rows if row["share"] < 1), key=lambda row: -row["share"])
    return [
        "| family | operations of products and attention in pieces |",
        "|---|---:|",
        f"| {', '.join(whole)} | 100% |",
        *(f"| {row['family']} | {100 * row['share']:.1f}% |" for row in rest),
    ]


def main() -> None:
    """Write the rows of families to a file, and the table to standard output."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("families", nargs="*", default=FAMILIES)
    chosen = parser.parse_args()
    transformers.logging.set_verbosity_error()
    rows = []
    for family in chosen.families:
        rows.append(row_of(family))
        print(json.dumps(rows[-1]), flush=True)
    versions = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "wsopt": wsopt.__version__,
    }
    document = {
        "kind": "families",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"CPU, {platform.machine()}, Python {platform.python_version()}",
        "versions": versions,
        "rows": rows,
    }
    chosen.file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
