"""The parent of benchmark processes: every folder gets its row, whatever becomes of the worker."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import pytest
from gpu_files import FIXTURES

from wsopt.bench.bench import bench_folders
from wsopt.bench.bench_options import BenchOptions, count_sets, options_from_text
from wsopt.bench.rows import FORMAT, load_document
from wsopt.errors import CheckError, InputError

WORKER = (sys.executable, str(FIXTURES / "fake_worker.py"))
FOLDERS = tuple(map(Path, ("ok_1", "hang_1", "crash_1", "stuck_1", "torn_1", "ok_2")))
STATUSES = ["ok", "hang", "error", "hang", "error", "ok"]


@pytest.mark.parametrize("together", [False, True])
def test_every_folder_gets_a_row(tmp_path: Path, together: bool) -> None:
    path = tmp_path / "new" / "bench.json"
    options = BenchOptions(limit_s=3.0, together=together)
    seen: list[str] = []
    document = bench_folders(
        FOLDERS, options, json_path=path, worker=WORKER, progress=lambda row: seen.append(row.folder)
    )
    assert [row.status for row in document.rows] == STATUSES
    assert seen == [folder.name for folder in FOLDERS]
    assert document.rows[2].message.endswith("illegal memory access")
    assert document.rows[3].message == "no result within 3 s"
    assert load_document(path) == document
    assert [item.name for item in path.parent.iterdir()] == ["bench.json"]


def test_rows_are_written_while_a_worker_goes_on(tmp_path: Path) -> None:
    """What is there is kept if the whole is interrupted while a later folder of the same worker hangs."""
    path, told = tmp_path / "bench.json", list[list[str]]()

    def interrupted() -> None:
        begun = time.monotonic()
        while not path.exists() and time.monotonic() - begun < 20:
            time.sleep(0.05)
        told.append([row.folder for row in load_document(path).rows])

    reader = threading.Thread(target=interrupted)
    reader.start()
    bench_folders(
        [Path("ok_1"), Path("stuck_1")],
        BenchOptions(limit_s=2.0, together=True),
        json_path=path,
        worker=WORKER,
    )
    reader.join()
    assert told == [["ok_1"]]


def test_document_of_the_format(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    bench_folders([Path("ok")], json_path=path, worker=WORKER)
    data = json.loads(path.read_text())
    assert list(data) == ["format", "date", "machine", "versions", "rows"]
    assert data["format"] == FORMAT == "wsopt.bench/1"
    assert data["machine"] == {"device": "Fake 9000"}
    assert data["date"].endswith("Z")
    assert data["rows"][0]["errors"] == {"y": 1e-3}


def test_no_worker_starts() -> None:
    with pytest.raises(CheckError, match=r"no benchmark could start: .*No module named 'torch'"):
        bench_folders([Path("unstartable")], worker=WORKER)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "other"}', '{"format": "wsopt.bench/1", "rows": [{"status": "?"}]}']
)
def test_not_a_document(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(text)
    with pytest.raises(InputError, match="not a benchmark"):
        load_document(path)


def test_options() -> None:
    options = BenchOptions(baselines=("eager",), rounds=5)
    assert options_from_text(options.to_text()) == options
    with pytest.raises(InputError, match="no baseline 'cudnn'; there are cublas"):
        BenchOptions(baselines=("cudnn",))
    with pytest.raises(InputError, match="rounds: 0, at least 1 is needed"):
        BenchOptions(rounds=0)
    with pytest.raises(InputError, match="settled_rounds: -1, at least 0 is needed"):
        BenchOptions(settled_rounds=-1)


@pytest.mark.parametrize(
    ("megabytes", "sets"), [(1, 64), (10, 18), (100, 2), (3000, 2), (5000, 1), (9000, 1)]
)
def test_sets_exceed_the_cache(megabytes: int, sets: int) -> None:
    assert count_sets(megabytes * 2**20, 60 * 2**20, BenchOptions()) == sets
