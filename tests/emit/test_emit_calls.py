"""The parameters of an emitted `run`: the inputs by name, unless a name can be no parameter."""

from __future__ import annotations

import pytest

from wsopt.emit.launcher import calls


def test_inputs_are_parameters() -> None:
    found = calls(["x", "w"])
    assert found["run_parameters"] == "*, x, w, out=None, **unused"
    assert found["safe_inputs"] == ["x", "w"]


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("lambda", "*, out=None, **tensors"),
        ("_view", "*, out=None, **tensors"),
        ("unused", "*, out=None, **tensors"),
        ("out", "**tensors"),
    ],
)
def test_a_name_that_is_no_parameter(name: str, run: str) -> None:
    found = calls(["x", name])
    assert (found["run_parameters"], found["safe_inputs"]) == (run, ["tensor_0", "tensor_1"])
