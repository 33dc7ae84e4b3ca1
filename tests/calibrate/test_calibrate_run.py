"""The parent of the workers, with stand-ins for them: hangs, failures and deaths are told, not suffered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from wsopt.calibrate.run import Options, calibrate
from wsopt.errors import CheckError

HEAD = """
import argparse, json, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--log"); parser.add_argument("--rounds", type=int)
parser.add_argument("--skip", action="append", default=[]); parser.add_argument("words", nargs="*")
chosen = parser.parse_args()
def say(**line):
    with open(chosen.log, "a") as file:
        file.write(json.dumps(line) + "\\n")
"""

GOOD = """
say(stage="compile", done=1, total=1)
say(machine={"device": "NVIDIA H200"}, versions={"triton": "3.6.0"})
for round in range(chosen.rounds):
    for name in ("latency.load", "sync.wait.1"):
        if name not in chosen.skip:
            say(start=name)
            ACT
            say(figures={name: 20.0 + round})
"""


def stand_in(tmp_path: Path, act: str = "pass", body: str = GOOD) -> list[str]:
    path = tmp_path / "worker.py"
    path.write_text(HEAD + body.replace("ACT", act), encoding="utf-8")
    return [sys.executable, str(path)]


def test_rounds_of_all_processes_come_together(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    options = Options(processes=2, rounds=3)
    document = calibrate(options, lambda *line: seen.append(line), stand_in(tmp_path))
    assert document.samples["latency.load"] == (20, 21, 22, 20, 21, 22)
    assert (document.machine["device"], document.versions["triton"]) == ("NVIDIA H200", "3.6.0")
    assert not document.failures
    assert seen == [("compile", 1, 1)] * 2


def test_a_probe_that_hangs_is_left_out_and_named(tmp_path: Path) -> None:
    worker = stand_in(tmp_path, 'time.sleep(60 if name == "sync.wait.1" else 0)')
    document = calibrate(Options(processes=1, rounds=2, limit_s=1.0), worker=worker)
    assert document.failures == {"sync.wait.1": "no result within 1 s"}
    assert len(document.samples["latency.load"]) == 3


def test_a_probe_that_kills_its_worker_is_named_with_its_last_words(tmp_path: Path) -> None:
    worker = stand_in(tmp_path, 'name == "sync.wait.1" and sys.exit("out of order")')
    document = calibrate(Options(processes=1, rounds=1), worker=worker)
    assert document.failures == {"sync.wait.1": "the process ended with status 1: out of order"}


def test_a_failure_that_the_worker_survives_is_named(tmp_path: Path) -> None:
    act = 'if name == "sync.wait.1": say(failed=name, message="no luck"); continue'
    document = calibrate(Options(processes=2, rounds=2), worker=stand_in(tmp_path, act))
    assert document.failures == {"sync.wait.1": "no luck"}


def test_too_many_failures_end_it(tmp_path: Path) -> None:
    worker = stand_in(tmp_path, 'say(failed=name, message="no luck"); continue')
    with pytest.raises(CheckError, match=r"gave up on 2 measurements; latency\.load: no luck"):
        calibrate(Options(processes=1, rounds=1, most_failures=1), worker=worker)


def test_a_worker_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    worker = stand_in(tmp_path, body='sys.exit("ImportError: no driver")')
    with pytest.raises(CheckError, match=r"calibrate could not start: .*no driver"):
        calibrate(Options(processes=1), worker=worker)
