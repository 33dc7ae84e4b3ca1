"""Build folders: what compile replaces and what it leaves alone, and what survives a kill."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from cli_runs import FILES, Compiled, assert_says, contents, environment, product, write, wsopt

from wsopt.errors import InputError
from wsopt.folder import read_folder, write_folder

TEXTS = dict.fromkeys(sorted(FILES), "new")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_foreign_folder_is_left_alone(warm: Path) -> None:
    (warm / "mine").mkdir()
    (warm / "mine" / "thesis.txt").write_text("years")
    (warm / "mine" / "kernel.py").write_text("by hand")
    before = names(warm)
    assert_says(wsopt(warm, "compile", "small.json", "-o", "mine"), 2, "mine", "thesis.txt")
    assert contents(warm / "mine") == {"thesis.txt": b"years", "kernel.py": b"by hand"}
    assert names(warm) == before


def test_a_build_is_replaced(compiled: Compiled, warm: Path) -> None:
    before = names(warm)
    (warm / "small.wsopt" / "kernel.py").write_text("old")
    assert wsopt(warm, "compile", "small.json").returncode == 0
    assert contents(warm / "small.wsopt") == contents(compiled.build)
    assert names(warm) == before


def test_an_empty_folder_is_taken(compiled: Compiled, warm: Path) -> None:
    (warm / "empty").mkdir()
    assert wsopt(warm, "compile", "small.json", "-o", "empty").returncode == 0
    assert contents(warm / "empty") == contents(compiled.build)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("small.json", "is no folder"),
        ("small.json/below", "does not exist"),
        ("absent/below", "absent does not exist"),
        ("link", "is no folder"),
        ("x" * 300, "name too long"),
        (".", "current folder"),
        ("empty/..", "current folder"),
        ("empty/../..", "holds"),
    ],
)
def test_targets_that_are_refused(target: str, why: str, warm: Path) -> None:
    (warm / "empty").mkdir()
    (warm / "link").symlink_to("small.wsopt")
    before = names(warm), contents(warm / "small.wsopt")
    done = wsopt(warm, "compile", "small.json", "-o", target)
    assert_says(done, 2, why)
    assert len(done.stderr.splitlines()) == 1
    assert (names(warm), contents(warm / "small.wsopt")) == before


def test_the_current_folder_is_refused(warm: Path) -> None:
    (warm / "empty").mkdir()
    done = wsopt(warm / "empty", "compile", "../small.json", "-o", ".", WSOPT_CACHE_DIR=str(warm / "cache"))
    assert_says(done, 2, "current folder")
    assert names(warm / "empty") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_parent(warm: Path) -> None:
    (warm / "locked").mkdir(mode=0o555)
    assert_says(wsopt(warm, "compile", "small.json", "-o", "locked/out"), 2, "cannot be written")
    assert names(warm / "locked") == []


def test_a_parent_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        write_folder(tmp_path / "out", TEXTS)
    assert names(tmp_path) == []


def test_a_failed_swap_keeps_the_old_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "out", dict.fromkeys(sorted(FILES), "old"))
    rename = Path.rename

    def fail_once(self: Path, target: Path) -> Path:
        if self.name.startswith(".wsopt-"):
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises(InputError, match="No space left"):
        write_folder(tmp_path / "out", TEXTS)
    assert contents(tmp_path / "out") == dict.fromkeys(FILES, b"old")
    assert names(tmp_path) == ["out"]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, text: str, encoding: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(InputError, match="No space left"):
        write_folder(tmp_path / "out", TEXTS)
    assert names(tmp_path) == []


def test_long_names_are_written(tmp_path: Path) -> None:
    write_folder(tmp_path / ("n" * 255), TEXTS)
    assert contents(tmp_path / ("n" * 255)) == dict.fromkeys(FILES, b"new")


def test_killed_at_any_moment(compiled: Compiled, tmp_path: Path) -> None:
    """The folder is absent or whole, whenever compile is killed, and the cache stays usable."""
    write(tmp_path, product(), "small.json")
    rng = random.Random(5)
    command = [sys.executable, "-m", "wsopt", "compile", "small.json"]
    for low, high in ((0.2, 0.6), (0.6, 1.0), (1.0, 1.6), (1.6, 2.2), (2.2, 3.0), (3.0, 4.0)):
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(rng.uniform(low, high))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        target = tmp_path / "small.wsopt"
        assert not target.exists() or contents(target) == contents(compiled.build)
    done = wsopt(tmp_path, "compile", "small.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert contents(tmp_path / "small.wsopt") == contents(compiled.build)
    assert names(tmp_path) == ["cache", "small.json", "small.wsopt"]


def test_a_build_reads_back(compiled: Compiled) -> None:
    found = read_folder(compiled.build)
    assert found.summary.items() <= compiled.summary.items()
    assert found.kernel == (compiled.build / "kernel.py").read_text()
    assert found.certificate.status == "optimal"
