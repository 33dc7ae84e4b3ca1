"""Records of machine code: what is not known is compiled, what is known now and then, and a difference is told."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import machine_code
import other_compiler
import pytest

ASKED: list[str] = []


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that counts what it is asked for, and makes as many instructions as a text has letters."""

    def made(module: str, request: Mapping[str, Any]) -> dict[str, Any]:
        ASKED.append(request["source"])
        return {"instructions": len(request["source"]), "seconds": 1.5}

    ASKED.clear()
    monkeypatch.setattr(machine_code, "ask_child", made)


def known(monkeypatch: pytest.MonkeyPatch, *texts: str, more: int = 0) -> None:
    """Have records of texts, each with so many instructions more than it has letters."""
    found = {
        machine_code._key("m", {"source": text}): {"instructions": len(text) + more, "seconds": 0.0}
        for text in texts
    }
    monkeypatch.setattr(machine_code, "_records", lambda: found)


def test_what_has_no_record_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, "another")
    assert machine_code.answer("m", {"source": "text"})["instructions"] == 4
    assert ASKED == ["text"]


def test_one_of_four_that_have_one_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["x" * length for length in range(1, 81)]
    known(monkeypatch, *texts)
    assert [machine_code.answer("m", {"source": text})["instructions"] for text in texts] == [*range(1, 81)]
    assert 8 <= len(ASKED) <= 32


def test_other_machine_code_of_a_known_text_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["x" * length for length in range(1, 41)]
    known(monkeypatch, *texts, more=1)
    with pytest.raises(AssertionError, match="other machine code"):
        [machine_code.answer("m", {"source": text}) for text in texts]


def test_another_compiler_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, "text")
    monkeypatch.setattr(machine_code, "_code", lambda: "another")
    machine_code.answer("m", {"source": "text"})
    assert ASKED == ["text"]


def test_another_release_is_asked_for_what_has_no_record_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, asked = ["x" * length for length in range(1, 41)], list[str]()

    def made(python: str, sources: Sequence[str], architecture: str) -> list[dict[str, Any]]:
        asked.extend(sources)
        return [{"instructions": len(source), "seconds": 1.5} for source in sources]

    def found() -> list[int]:
        return [one["instructions"] for one in other_compiler.compiled_by("python", texts)]

    monkeypatch.setattr(other_compiler, "_release", lambda python: "1.0")
    monkeypatch.setattr(other_compiler, "_made_by", made)
    monkeypatch.setattr(machine_code, "_records", dict)
    assert found() == [*range(1, 41)]
    assert asked == texts
    requests = {text: {"source": text, "architecture": "sm_90"} for text in texts}
    keys = {text: machine_code.key_of("1.0", "other_compiler", asked) for text, asked in requests.items()}
    records = {keys[text]: {"instructions": len(text), "seconds": 0.0} for text in texts[1:]}
    monkeypatch.setattr(machine_code, "_records", lambda: records)
    asked.clear()
    assert found() == [*range(1, 41)]
    assert texts[0] in asked
    assert 3 <= len(asked) <= 20


def test_records_are_what_tests_have_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WSOPT_RECORD_MACHINE_CODE", str(tmp_path))
    monkeypatch.setattr(machine_code, "_records", dict)
    machine_code.answer("m", {"source": "text"})
    monkeypatch.setattr(machine_code, "FILE", tmp_path / "records.json")
    monkeypatch.setattr("sys.argv", ["machine_code.py", str(tmp_path)])
    machine_code.main()
    key = machine_code._key("m", {"source": "text"})
    assert json.loads((tmp_path / "records.json").read_text()) == {key: {"instructions": 4, "seconds": 0.0}}
