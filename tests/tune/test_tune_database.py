"""The database: what was put in comes out, after a kill, beside others, and never from a damaged file."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tune_examples import RACE, FakeMeasurer, race, write_candidates

from wsopt.errors import CheckError
from wsopt.tune.database import Database
from wsopt.tune.measure import Tuning, measure_candidates
from wsopt.tune.races import key

HERE = Path(__file__).parent


def test_races_come_back(tmp_path: Path) -> None:
    database = Database(tmp_path / "new" / "folder")
    assert database.races() == ()
    database.put([race("s2", 1.03), race("s1")])
    database.put([race("s3", None)])
    assert Database(tmp_path / "new" / "folder").races() == (race("s1"), race("s2", 1.03), race("s3", None))


def test_the_later_of_two_stays(tmp_path: Path) -> None:
    database = Database(tmp_path)
    late, early = replace(RACE, ratio=1.5, date="2026-12-01T00:00:00Z"), replace(RACE, ratio=0.5)
    database.put([late])
    database.put([early])
    assert database.races() == (late,)
    database.put([replace(RACE, date="2027-01-01T00:00:00Z")])
    assert database.races()[0].ratio == 1.0


@pytest.mark.parametrize("field", ["graph", "machine", "source", "against", "triton", "card"])
def test_what_the_key_is_made_of(tmp_path: Path, field: str) -> None:
    database = Database(tmp_path)
    database.put([RACE, replace(RACE, **{field: "other"})])
    assert len(database.races()) == 2


def test_all_or_none(tmp_path: Path) -> None:
    database = Database(tmp_path)
    broken = replace(RACE, source="s2", card=None)  # type: ignore[arg-type]
    with pytest.raises(CheckError, match="NOT NULL"):
        database.put([RACE, broken])
    assert database.races() == ()


def test_a_kill_in_the_middle_of_a_run(tmp_path: Path) -> None:
    write_candidates(tmp_path / "c", 5)
    path = os.pathsep.join([str(HERE.parents[1]), str(HERE)])
    script = [sys.executable, str(HERE / "fixtures" / "killed.py"), str(tmp_path / "c"), str(tmp_path / "db")]
    done = subprocess.run(
        script, env={**os.environ, "PYTHONPATH": path}, timeout=60, check=False, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    told: list[str] = []
    database = Database(tmp_path / "db", told.append)
    assert {one.rank for one in database.races()} == {1, 2}
    known = {key(one) for one in database.races()}
    measurer = FakeMeasurer()
    tuning = Tuning(measurer, known=lambda one: key(one) in known, on_race=lambda one: database.put([one]))
    measure_candidates(tmp_path / "c", tuning)
    assert measurer.asked == ["01", "03", "04", "05"]
    assert sorted(one.rank for one in database.races()) == [1, 2, 3, 4, 5]
    assert told == []


def _put_some(folder: Path, name: str) -> None:
    for number in range(20):
        Database(folder).put([race(f"{name}{number:02}")])


def test_two_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_put_some, args=(tmp_path, name)) for name in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert len(Database(tmp_path).races()) == 40


def _overwrite(path: Path) -> None:
    path.write_bytes(b"no database at all")


def _scramble(path: Path) -> None:
    rng, data = random.Random(2), bytearray(path.read_bytes())
    for place in range(100, len(data), 3):
        data[place] = rng.randrange(256)
    path.write_bytes(bytes(data))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _another_format(path: Path) -> None:
    store = sqlite3.connect(path)
    store.execute("PRAGMA user_version = 7")
    store.close()


def _another_database(path: Path) -> None:
    path.unlink()
    store = sqlite3.connect(path)
    store.execute("CREATE TABLE addresses (name TEXT)")
    store.close()


@pytest.mark.parametrize("damage", [_overwrite, _scramble, _truncate, _another_format, _another_database])
def test_a_damaged_database_is_set_aside(tmp_path: Path, damage: object) -> None:
    told: list[str] = []
    database = Database(tmp_path, told.append)
    database.put([race(f"s{number}") for number in range(30)])
    damage(database.path)  # type: ignore[operator]
    before = database.path.read_bytes()
    assert database.races() == ()
    assert len(told) == 1
    assert "set aside as tuned.sqlite3.damaged1, measurements begin anew" in told[0]
    assert (tmp_path / "tuned.sqlite3.damaged1").read_bytes()[100:] == before[100:]
    database.put([RACE])
    assert database.races() == (RACE,)
    _overwrite(database.path)
    assert database.races() == ()
    assert (tmp_path / "tuned.sqlite3.damaged2").exists()


def test_a_damaged_row_is_left_out(tmp_path: Path) -> None:
    told: list[str] = []
    database = Database(tmp_path, told.append)
    database.put([race("s1"), race("s2", 1.03)])
    store = sqlite3.connect(database.path)
    store.execute("UPDATE races SET race = replace(race, '1.03', '9.03') WHERE source = 's2'")
    store.commit()
    store.close()
    assert database.races() == (race("s1"),)
    assert told == [f"{database.path}: 1 of 2 results are damaged and left out"]


def test_what_is_no_damage_sets_nothing_aside(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(CheckError, match="cannot be opened"):
        Database(tmp_path / "file").races()
    (tmp_path / "tuned.sqlite3").mkdir()
    with pytest.raises(CheckError, match="cannot be opened"):
        Database(tmp_path).races()
    assert (tmp_path / "tuned.sqlite3").is_dir()
