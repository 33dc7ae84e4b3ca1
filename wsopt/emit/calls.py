"""The parameters of an emitted kernel's `run`."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from typing import Any

_TAKEN = frozenset({"out", "unused"})


def calls(inputs: Sequence[str]) -> dict[str, Any]:
    """The template's text on calls. Inputs are parameters of `run`, unless Python reserves one's name."""
    named = not any(keyword.iskeyword(name) or name.startswith("_") or name in _TAKEN for name in inputs)
    parameters = list(inputs) if named else [f"tensor_{number}" for number, _ in enumerate(inputs)]
    takes_out = "out" not in inputs
    if named:
        run = f"*, {', '.join(parameters)}, out=None, **unused"
    else:
        run = "*, out=None, **tensors" if takes_out else "**tensors"
    return {
        "named_inputs": named,
        "safe_inputs": parameters,
        "parameters_of_inputs": ", ".join(parameters),
        "takes_out": takes_out,
        "run_parameters": run,
    }
