"""What the names of models say that `python -m wsopt.torch.timed` is asked for."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from wsopt.errors import RequirementError  # noqa: E402
from wsopt.torch import timed  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("space", ["", " "])
def test_fields_follow_a_type_with_spaces_or_without(space: str) -> None:
    name = f"qwen3,{space}hidden_size=4096,{space}hidden_act=gelu:1x16@8192"
    assert timed._told(name) == ("qwen3", {"hidden_size": 4096, "hidden_act": "gelu"}, "1x16@8192")


def test_what_is_no_field_is_refused() -> None:
    with pytest.raises(RequirementError, match="hidden_size is no field and its value"):
        timed._told("llama,hidden_size:1x16")
