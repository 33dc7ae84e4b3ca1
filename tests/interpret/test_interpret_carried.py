"""What a loop hands on and Triton 3.6 may lose is refused: constants, and what only inner loops' bounds depend on."""

from __future__ import annotations

import pytest

from wsopt.interpret.faults import InterpreterError
from wsopt.interpret.lines import marked

KERNEL = """\
@gluon.jit
def kernel(pointer, count):
    ahead = gl.minimum(count, 3)
    for tile in {loop}:
{body}
"""


def compiled(body: str, loop: str = "range(0, count)") -> tuple[int, ...]:
    """The lines of the kernel that have a statement: of an accepted one the function's, the loop's and the body's."""
    lines = "\n".join("        " + line for line in body.splitlines())
    return marked(KERNEL.format(loop=loop, body=lines)).lines


def test_a_constant_that_the_next_pass_would_read_is_refused() -> None:
    with pytest.raises(InterpreterError, match=r"kernel.py:6: kernel: ahead is set to a constant in a loop"):
        compiled("gl.store(pointer + ahead, tile)\nahead = 0")


def test_a_constant_in_an_inner_loop_is_refused() -> None:
    with pytest.raises(InterpreterError, match="ahead is set to a constant"):
        compiled("for k in range(ahead, count):\n    gl.store(pointer, k)\n    ahead = 0")


def test_what_a_pass_gives_a_value_before_it_reads_it_is_carried_by_nobody() -> None:
    assert compiled("ahead = 0\ngl.store(pointer + ahead, tile)") == (3, 4, 5, 6)


def test_values_that_are_no_constants_are_carried() -> None:
    assert compiled("gl.store(pointer + ahead, tile)\nahead = ahead - 1") == (3, 4, 5, 6)


def test_a_loop_that_is_unrolled_carries_nothing() -> None:
    assert compiled("gl.store(pointer + ahead, tile)\nahead = 0", loop="gl.static_range(3)") == (3, 4, 5, 6)


def test_what_reaches_nothing_but_bounds_of_inner_loops_is_refused() -> None:
    with pytest.raises(
        InterpreterError, match=r"kernel.py:4: kernel: ahead is handed on .* but bounds of loops in it"
    ):
        compiled(
            "begin = tile - ahead\nfor k in range(begin, count):\n    gl.store(pointer, k)\nahead = ahead + tile"
        )


def test_it_is_found_through_other_names_and_in_place() -> None:
    with pytest.raises(InterpreterError, match="ahead is handed on"):
        compiled("after = ahead + tile\nfor k in range(0, ahead):\n    gl.store(pointer, k)\nahead = after")
    with pytest.raises(InterpreterError, match="ahead is handed on"):
        compiled("for k in range(0, ahead):\n    gl.store(pointer, k)\nahead += gl.maximum(tile, 1)")


def test_what_an_address_is_computed_from_is_carried() -> None:
    body = "begin = tile - ahead\nfor n in range(0, begin):\n    gl.store(pointer + begin, n)\nahead = ahead + tile"
    assert compiled(body) == (3, 4, 5, 6, 7, 8)


def test_bounds_that_each_pass_computes_anew_are_carried_by_nobody() -> None:
    assert compiled("ahead = tile + 1\nfor k in range(0, ahead):\n    gl.store(pointer, k)") == (
        3,
        4,
        5,
        6,
        7,
    )
    assert compiled("ahead, last = parts(tile)\nfor k in range(ahead, last):\n    gl.store(pointer, k)") == (
        3,
        4,
        5,
        6,
        7,
    )


def test_a_value_that_memory_is_asked_with_is_carried() -> None:
    body = (
        "end = gl.load(pointer + ahead)\nfor k in range(0, end):\n    gl.store(pointer, k)\nahead = ahead + 1"
    )
    assert compiled(body) == (3, 4, 5, 6, 7, 8)
