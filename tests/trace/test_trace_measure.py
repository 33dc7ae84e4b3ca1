"""The parent of the measuring process: a document and a table, or one sentence on what is missing or failed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from trace_builds import folder_of, traced

from wsopt.errors import CheckError, InputError, RequirementError
from wsopt.trace import measure as measure_module
from wsopt.trace.files import FOLDER, KERNEL, RECORDS, RESULT, STAMPS, load_stamped, to_text
from wsopt.trace.measure import main, measure_trace
from wsopt.trace.options import TraceOptions, options_from_text

WORKER = (sys.executable, str(Path(__file__).parent / "fixtures" / "fake_trace_worker.py"))
OPTIONS = TraceOptions(launches=2, limit_s=20.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of(traced("plain"), tmp_path / "plain.wsopt")


def test_the_document_is_written_beside_the_build(folder: Path) -> None:
    found = measure_trace(folder, OPTIONS, worker=WORKER)
    assert json.loads((folder / FOLDER / RESULT).read_text()) == json.loads(json.dumps(found))
    assert found["cost"] == pytest.approx(0.1)
    assert (found["name"], found["graph"]["name"]) == ("plain", "small")
    launches = json.loads((folder / FOLDER / RECORDS).read_text())["launches"]
    assert [len(words) for words in launches] == [traced("plain").stamped.words] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fate", "kind", "told"),
    [
        ("no gpu", RequirementError, "torch sees no GPU here, and a trace is made on one"),
        ("wrong", CheckError, "no trace: ValueError: the traced kernel computes something else: y is off"),
        ("crash", CheckError, "no trace: the process ended with status 1: an illegal memory access"),
        ("hang", CheckError, "no trace: no result within 3 s"),
    ],
)
def test_one_sentence_for_what_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fate: str, kind: type[Exception], told: str
) -> None:
    monkeypatch.setenv("TRACE_FAKE", fate)
    options = replace(OPTIONS, limit_s=3.0 if fate == "hang" else 20.0)
    with pytest.raises(kind, match=told):
        measure_trace(folder, options, worker=WORKER)
    assert not (folder / FOLDER / RESULT).exists()


def test_the_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        measure_module, "measure_trace", lambda path, options: measure_trace(path, options, worker=WORKER)
    )
    assert main([str(folder), "--launches", "1"]) == 0
    assert "the stamps cost +10.0%" in capsys.readouterr().out
    monkeypatch.setenv("TRACE_FAKE", "no gpu")
    assert main([str(folder)]) == 2
    assert "--prepare` writes the traced kernel" in capsys.readouterr().err


def test_a_build_without_a_traced_kernel(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read: .*`wsopt trace .* --prepare` writes it"):
        measure_trace(tmp_path, OPTIONS, worker=WORKER)


def test_a_kernel_that_is_another_one(folder: Path) -> None:
    with (folder / FOLDER / KERNEL).open("a") as file:
        file.write("# edited\n")
    with pytest.raises(InputError, match=r"is of another kernel than kernel\.py beside it"):
        load_stamped(folder)


@pytest.mark.parametrize("damage", ["", "[]", '{"format": "wsopt.trace.stamps/0"}'])
def test_stamps_that_are_damaged(folder: Path, damage: str) -> None:
    (folder / FOLDER / STAMPS).write_text(damage)
    with pytest.raises(InputError, match=r"is no stamps\.json of this release; prepare it again"):
        load_stamped(folder)


def test_files_and_options_come_back_as_they_were(folder: Path) -> None:
    stamped = traced("plain").stamped
    assert load_stamped(folder) == stamped
    assert to_text(load_stamped(folder)) == (folder / FOLDER / STAMPS).read_text()
    assert options_from_text(OPTIONS.to_text()) == OPTIONS
