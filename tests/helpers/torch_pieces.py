"""What tests of the `torch.compile` backend share: options that need no GPU, and models compiled with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from wsopt.graph.types import Input
from wsopt.torch import backend, laying

OPTIONS = {"execute": "reference", "rest": "eager", "take": "all"}
"""All pieces that there are, computed by torch as their graphs say, on any device."""


def fresh() -> None:
    """Nothing is compiled yet, and random numbers are those of the first draw.

    Sizes that others have compiled the same layers for would be taken for ones that change.
    """
    torch._dynamo.reset()
    torch.manual_seed(0)


def with_pieces(model: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """A model under the backend, with `OPTIONS` or these in their place."""
    found: Callable[..., Any] = torch.compile(model, backend=backend, options=OPTIONS | options)
    return found


def copied_inputs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of inputs that are copied in front of a piece's operator from now on."""
    copied: list[str] = []
    before = laying.laid

    def laid(tensor: torch.Tensor, item: Input) -> torch.Tensor:
        found = before(tensor, item)
        copied.extend([item.name] * (found is not tensor))
        return found

    monkeypatch.setattr(laying, "laid", laid)
    return copied


class Counted:
    """A model under the backend, with `OPTIONS` or these in their place, and how often it was compiled."""

    def __init__(self, model: Callable[..., Any], **options: Any) -> None:
        self.times = 0

        def counting(module: torch.fx.GraphModule, inputs: Any) -> Any:
            self.times += 1
            return backend(module, inputs, options=OPTIONS | options)

        self.call: Callable[..., Any] = torch.compile(model, backend=counting)
