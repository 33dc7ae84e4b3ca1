"""Records of machine code: whose they are, and that another release of Triton has its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        return {"instructions": len(request["source"]), "seconds": float(len(ASKED))}

    ASKED.clear()
    monkeypatch.setattr(machine_code, "ask_child", made)
    monkeypatch.setattr(machine_code.RECORDS, "known", {})
    monkeypatch.setattr(machine_code.RECORDS, "found", {})


def told(text: str) -> int:
    found: int = machine_code.answer("m", {"source": text})["instructions"]
    return found


def test_how_long_a_compile_took_is_no_part_of_what_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["x" * length for length in range(1, 321)]
    assert [told(text) for text in texts] == [*range(1, 321)]
    monkeypatch.setattr(machine_code.RECORDS, "known", dict(machine_code.RECORDS.found))
    monkeypatch.setattr(machine_code.RECORDS, "found", {})
    ASKED[:] = ["seconds differ now"]
    assert [told(text) for text in texts] == [*range(1, 321)]
    assert 2 <= len(ASKED) <= 50


def test_another_compiler_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["x" * length for length in range(1, 41)]
    key = machine_code.key_of
    release = machine_code.importlib.metadata.version("triton")
    known = {key(release, "m", {"source": text}): {"instructions": 0, "seconds": 0.0} for text in texts}
    monkeypatch.setattr(machine_code.RECORDS, "known", known)
    monkeypatch.setattr(machine_code, "_code", lambda: "another")
    assert [told(text) for text in texts] == [*range(1, 41)]
    assert texts == ASKED


def test_another_release_is_asked_for_what_has_no_record_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, asked = ["x" * length for length in range(1, 321)], list[str]()

    def made(python: str, sources: Sequence[str], architecture: str) -> list[dict[str, Any]]:
        asked.extend(sources)
        return [{"instructions": len(source), "seconds": 1.5} for source in sources]

    def found() -> list[int]:
        return [one["instructions"] for one in other_compiler.compiled_by("python", texts)]

    monkeypatch.setattr(other_compiler, "_release", lambda python: "1.0")
    monkeypatch.setattr(other_compiler, "_made_by", made)
    assert found() == [*range(1, 321)]
    assert asked == texts
    requests = {text: {"source": text, "architecture": "sm_90"} for text in texts}
    keys = {text: machine_code.key_of("1.0", "other_compiler", asked) for text, asked in requests.items()}
    known = {keys[text]: {"instructions": len(text), "seconds": 0.0} for text in texts[1:]}
    monkeypatch.setattr(machine_code.RECORDS, "known", known)
    monkeypatch.setattr(machine_code.RECORDS, "found", {})
    asked.clear()
    assert found() == [*range(1, 321)]
    assert texts[0] in asked
    assert 3 <= len(asked) <= 50
