"""Files of races and of candidates: read back as written, or refused with what is wrong and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tune_examples import RACE, kernel, race, write_candidates

from wsopt.errors import InputError
from wsopt.tune.candidates import MANIFEST, load_candidates
from wsopt.tune.races import code_digest, load_races, races_text, write_races


def test_races_come_back(tmp_path: Path) -> None:
    races = (race("s1"), race("s2", 1.03), race("s3", None))
    write_races(tmp_path / "r.json", reversed(races))
    assert load_races(tmp_path / "r.json") == races
    assert [item.name for item in tmp_path.iterdir()] == ["r.json"]


def _edit(change: dict[str, Any] | None = None, drop: str | None = None, **top: Any) -> str:
    data = json.loads(races_text([RACE]))
    data["races"][0] |= change or {}
    data["races"][0].pop(drop, None)
    return json.dumps(data | top)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not JSON"),
        ("[1]", "/format: is None; this version reads 'wsopt.tune/1'"),
        (_edit(format="wsopt.tune/2"), "/format: is 'wsopt.tune/2'; this version reads 'wsopt.tune/1'"),
        (_edit(races={}), "/races: is no list"),
        (_edit(races=[3]), "/races/0: is no object"),
        (_edit({"ratio": "fast"}), "/races/0/ratio: 'fast' is no float"),
        (_edit({"rank": True}), "/races/0/rank: True is no int"),
        (_edit({"ratio": None}), "/races/0: is ok and lacks a time"),
        (_edit({"ratio": float("nan")}), "/races/0: is ok and lacks a time"),
        (_edit({"status": "fine"}), "/races/0/status: 'fine'; allowed: ok, wrong, hang, error"),
        (_edit({"speed": 1}), "/races/0/speed: unknown field"),
        (_edit(drop="card"), "/races/0/card: missing"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(InputError) as refused:
        load_races(tmp_path / "r.json")
    assert told in str(refused.value)


def test_the_digest_is_of_the_code_alone() -> None:
    assert code_digest(kernel(1)) == code_digest(kernel(1, "predicted 3 us\nby another version"))
    assert code_digest(kernel(1)) != code_digest(kernel(2))
    assert code_digest("x = 1\n") != code_digest("x = 2\n")


def test_candidates_come_back(tmp_path: Path) -> None:
    written = write_candidates(tmp_path, 3)
    assert load_candidates(tmp_path) == written


def test_candidates_that_are_not_those_listed(tmp_path: Path) -> None:
    write_candidates(tmp_path, 2)
    (tmp_path / "02" / "kernel.py").write_text(kernel(7))
    with pytest.raises(InputError, match=r"02/kernel.py is not the kernel that was listed"):
        load_candidates(tmp_path)
    (tmp_path / "02" / "kernel.py").unlink()
    with pytest.raises(InputError, match=r"holds no candidates: .*kernel.py cannot be read"):
        load_candidates(tmp_path)
    (tmp_path / MANIFEST).write_text('{"format": "wsopt.candidates/2"}')
    with pytest.raises(InputError, match="not a list of candidates: ValueError: format"):
        load_candidates(tmp_path)
