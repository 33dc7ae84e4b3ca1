"""Constants that are packed before the first launch: where every element lies, the way back, stale copies."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from wsopt.runtime import packing  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        packing,
        "PACKED",
        {"q": "four_bits", "w": "eight_bits", "s": "turned", "p": "padded", "l": "lines"},
    )
    monkeypatch.setattr(packing, "_COPIES", {})


def some(*shape: int, dtype: Any = torch.uint8) -> Any:
    return torch.randint(0, 128, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def test_four_bits_lie_as_it_is_said() -> None:
    given = some(5, 128)
    natural = torch.stack([given & 15, given >> 4], -1).reshape(5, 2, 128)
    words = packing.prepack(q=given)["q"].view(torch.int16).to(torch.int32).reshape(5, 2, 32)
    for t, j, e, x, y in itertools.product(range(4), range(4), range(2), range(2), range(2)):
        found = words[:, :, 8 * t + 2 * j + e] >> 4 * (2 * x + y) & 15
        assert torch.equal(found, natural[:, :, 32 * j + 16 * y + 8 * x + 2 * t + e].to(torch.int32))


def test_eight_bits_lie_as_it_is_said() -> None:
    given = some(5, 128, dtype=torch.int8)
    natural = given.reshape(5, 2, 64)
    words = packing.prepack(w=given)["w"].reshape(5, 2, 32, 2)
    for t, j, e, s in itertools.product(range(4), range(4), range(2), range(2)):
        assert torch.equal(words[:, :, 8 * t + 2 * j + e, s], natural[:, :, 16 * j + 8 * s + 2 * t + e])


def test_what_is_turned_keeps_its_numbers_and_what_is_none() -> None:
    given = torch.randn(6, 3).bfloat16()
    given[2, 1] = float("nan")
    found = packing.prepack(s=given)["s"]
    assert found.stride() == (1, 6)
    assert torch.equal(found.view(torch.int16), given.view(torch.int16))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float8_e4m3fn"])
@pytest.mark.parametrize(("name", "whole"), [("p", 16), ("l", 128)])
def test_what_is_padded_begins_each_row_at_a_multiple_of_bytes(dtype: str, name: str, whole: int) -> None:
    given = torch.randn(7, 77).to(getattr(torch, dtype))
    found = packing.prepack(**{name: given})[name]
    assert found.stride() == (-(-77 * given.element_size() // whole) * whole // given.element_size(), 1)
    assert torch.equal(found.contiguous().view(torch.uint8), given.view(torch.uint8))


def test_a_tensor_is_packed_once_until_it_is_written_to() -> None:
    given = some(4, 64)
    first = packing.prepack(q=given)["q"]
    assert packing._packed("q", given) is first
    assert packing._packed("q", first) is first
    given[0, 0] ^= 1
    with pytest.raises(ValueError, match="q was written to since it was packed"):
        packing._packed("q", first)
    assert not torch.equal(packing._packed("q", given), first)


def test_a_copy_outlives_what_it_was_made_of() -> None:
    given = some(4, 64)
    first = packing.prepack(q=given)["q"]
    packing._COPIES.clear()
    del given
    assert packing._packed("q", first) is first


def test_other_packings_and_shapes_are_refused() -> None:
    turned = packing.prepack(s=torch.randn(4, 4))["s"]
    with pytest.raises(ValueError, match="packed as turned, and this kernel reads it as four_bits"):
        packing._packed("q", turned)
    with pytest.raises(ValueError, match="rows of 96 elements have no whole fragments of 128"):
        packing.prepack(q=some(4, 48))
    with pytest.raises(ValueError, match="q has 3 dimensions, expected 2"):
        packing.prepack(q=some(2, 4, 64))


def test_a_packing_that_loses_something_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = packing._ORDERS["four_bits"]
    monkeypatch.setitem(packing._ORDERS, "four_bits", (*there[:4], (0, 1, 3, 5, 6, 2, 4)))
    with pytest.raises(RuntimeError, match="another one when it has been packed"):
        packing.prepack(q=some(4, 64))
