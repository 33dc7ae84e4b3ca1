"""A constant that a loop assigns to a variable from before it is refused: Triton 3.6 may lose it."""

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
