"""Texts of kernels that are one program, and texts that are not."""

from __future__ import annotations

import pytest

from wsopt.ranges.alike import alike

TEXT = """
# compiled at 512
def bind(x):
    _expect(x.shape[0] <= 64, f"at {x.shape[0]} rows, as at 512")
    batch, row_tile = divide(tile, row_tiles)
    return x.shape[0] // 64
"""


@pytest.mark.parametrize(
    ("before", "after", "one"),
    [
        ("at 512", "at 2000", True),
        ("    return", "    row_tile = row_tiles - 1 - row_tile\n    return", True),
        (
            '64, f"at {x.shape[0]} rows, as at 512")',
            '64,\n        f"at {x.shape[0]} rows, as at 7",\n    )',
            True,
        ),
        ("// 64", "// 128", False),
        ("<= 64", "<= 65", False),
        ("shape[0] //", "shape[1] //", False),
        ("    return", "    x = x\n    return", False),
    ],
)
def test_what_makes_another_program(before: str, after: str, one: bool) -> None:
    changed = TEXT.replace(before, after)
    assert changed != TEXT
    assert alike(TEXT, changed) == one
