"""What a command shows while it works: stages on a terminal, nothing in a pipe, one line when it is interrupted."""

from __future__ import annotations

import io
import sys
import time
from dataclasses import replace

import golden_kernels
import pytest
from cli_runs import product

from wsopt import cli, driver, terminal
from wsopt.deadline import UNLIMITED, Deadline
from wsopt.errors import TimeOverError
from wsopt.graph.parse import parse_graph
from wsopt.interpret.strategy import STRATEGIES
from wsopt.machine import Machine
from wsopt.schedule.certificate import Certificate
from wsopt.simulation import simulate


class Screen(io.StringIO):
    """Standard error of a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_stage_its_steps_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    with terminal.progress() as show:
        show("solve", 3, 12)
        time.sleep(0.25)  # it is drawn ten times a second
        show("simulate", 1, 20)
    shown = screen.getvalue()
    assert "solve" in shown
    assert "3/12" in shown
    assert "simulate" in shown
    assert "1/20" in shown
    assert "left" in shown


def test_a_pipe_gets_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with terminal.progress() as show:
        show("solve", 1, 12)
    assert capfd.readouterr() == ("", "")
    assert terminal.interrupted() == "interrupted"


def test_an_interruption_is_one_line_with_the_stage(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def work(**_: object) -> None:
        with terminal.progress() as show:
            show("solve", 1200, 6194)
            raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", work)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capfd.readouterr().err == "wsopt: interrupted in the stage solve, 1,200 of 6,194 steps done\n"
    with terminal.progress() as show:  # an end without a fault ends the stage
        show("compile", 0, 1)
    assert terminal.interrupted() == "interrupted"


def test_time_is_divided_among_what_has_to_be_done() -> None:
    one = Deadline(10.0, began=100.0)
    assert 100.0 < one.search_end < one.simulation_end < one.end == 110.0
    assert one.over
    assert not UNLIMITED.over
    told: list[tuple[str, int, int]] = []
    UNLIMITED.bounded("g", lambda *step: told.append(step))("solve", 1, 2)
    assert told == [("solve", 1, 2)]
    with pytest.raises(
        TimeOverError, match=r"graph g: the 10 s of --time-limit .* stage solve \(1 of 2 steps\)"
    ):
        one.bounded("g", lambda *step: None)("solve", 1, 2)
    assert TimeOverError.exit_status == 3


def test_a_command_whose_time_is_over_before_it_has_a_kernel_says_so(h200: Machine) -> None:
    graph, began = parse_graph(product(m=1024, n=1024, k=512), "small.json"), time.monotonic()
    with pytest.raises(TimeOverError, match=r"in the stage bound \(\d+ of \d,\d+ steps\)"):
        driver.build(graph, h200, seconds=0.05, use_cache=False)
    assert time.monotonic() - began < 3


@pytest.mark.slow
def test_a_simulation_that_has_no_time_left_has_still_seen_each_strategy() -> None:
    made = golden_kernels.emitted("joint")
    found = simulate(made.graph, made.verified, made.source, 20, enough=lambda: True)
    assert found.seeds == len(STRATEGIES) < 20
    assert found.lines_run == found.lines
    left = Certificate(9, 2, (), 3, 4, 1.0, 0.1, 24, ())
    assert driver._skipped(left, found) == ["4 structures left open", "12 interleavings of 20 not simulated"]
    assert driver._skipped(replace(left, unfinished=0), replace(found, seeds=20)) == []
