"""A command line's errors are printed, and become its exit status; faults of the program go on as they are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from wsopt.errors import InputError, LoweringError, Problem
from wsopt.exit_status import with_exit_status


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """What it does."""
    match arguments:
        case ["input"]:
            raise InputError("graph.json", [Problem("/nodes", "there are none")])
        case ["lowering"]:
            raise LoweringError("cannot be lowered")
        case ["fault"]:
            raise KeyError("a fault")
    return 7


@pytest.mark.parametrize(
    ("argument", "status", "printed"),
    [
        ("input", 2, "graph.json: /nodes: there are none\n"),
        ("lowering", 3, "cannot be lowered\n"),
        ("nothing", 7, ""),
    ],
)
def test_errors_have_their_statuses(
    argument: str, status: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument]) == status
    assert capsys.readouterr() == ("", printed)


def test_a_fault_of_the_program_goes_on() -> None:
    with pytest.raises(KeyError, match="a fault"):
        main(["fault"])


def test_it_is_called_as_before() -> None:
    assert (main.__name__, main.__doc__) == ("main", "What it does.")
