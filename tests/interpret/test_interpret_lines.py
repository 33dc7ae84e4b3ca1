"""Which statements of a kernel's device functions have run: each has a mark, and nothing else has one."""

from __future__ import annotations

import pytest

from wsopt.interpret import Coverage, execute, marked
from wsopt.interpret.faults import InterpreterError

SOURCE = '''
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


def on_the_host(count):
    return count + 1


@gluon.jit
def helper(x):
    """Said in passing."""
    if x > 2:
        y = 1
    elif x > 1:
        y = 2
    else:
        y = 3
    return y


@gluon.jit(do_not_specialize=["count"])
def kernel(count):
    total = 0
    for i in range(count):
        total += helper(i)
    while total > 100:
        total = 0
    if count == 0: total = 1


def prepare(**tensors):
    def launch():
        kernel[(1,)](on_the_host(COUNT))

    return launch, {}


def run(**tensors):
    launch, outputs = prepare(**tensors)
    launch()
'''


def line(text: str) -> int:
    """The number of the one line that is this, but for its indent."""
    (number,) = [n for n, one in enumerate(SOURCE.split("\n"), 1) if one.strip() == text]
    return number


def missed(*counts: int) -> set[int]:
    """The lines that ran for none of these counts."""
    ran: set[int] = set()
    for count in counts:
        ran |= execute(SOURCE.replace("COUNT", str(count)), {}, seed=0).ran
    return set(Coverage(marked(SOURCE).lines, frozenset(ran)).missed)


def test_statements_of_device_functions_have_a_mark() -> None:
    numbers = set(marked(SOURCE).lines)
    assert {line("y = 1"), line("elif x > 1:"), line("for i in range(count):"), line("return y")} <= numbers
    unmarked = ("return count + 1", '"""Said in passing."""', "return launch, {}", "launch()", "else:")
    assert not numbers & {line(text) for text in unmarked}


def test_branches_and_bodies_count() -> None:
    never = line("if count == 0: total = 1")
    loop = line("while total > 100:") + 1
    assert missed(1) == {line("y = 1"), line("y = 2"), loop, never}
    assert missed(2) == {line("y = 1"), loop, never}
    assert missed(3) == {loop, never}
    assert missed(200) == {never}


def test_a_line_counts_when_all_on_it_has_run() -> None:
    never = line("if count == 0: total = 1")
    assert marked(SOURCE).lines.count(never) == 2
    assert never in missed(3)
    assert never not in missed(3, -1)
    assert Coverage(marked(SOURCE).lines, frozenset()).of == len(set(marked(SOURCE).lines))


def test_of_two_sources_the_functions_that_are_the_same_are_compiled_once() -> None:
    one, other = marked(SOURCE), marked(SOURCE.replace("COUNT", "7"))
    shared = set(map(id, one.code)) & set(map(id, other.code))
    assert len(one.code) == len(other.code) > 2
    assert len(shared) == len(one.code) - 1
    assert one.lines == other.lines


def test_what_is_no_python_is_told_with_its_line_in_the_file() -> None:
    wrong = line("y = 2")
    with pytest.raises(InterpreterError, match=rf"^kernel\.py:{wrong}: "):
        marked(SOURCE.replace("y = 2", "y = = 2"))
    text = 'text = """\n@gluon.jit\n("""\n'
    with pytest.raises(InterpreterError, match="begins like a device function"):
        marked(SOURCE + text)
