"""Build folders: what compile replaces and what it leaves alone, and what survives a kill."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from cli_runs import FILES, Compiled, assert_says, contents, environment, product, write, wsopt

from wsopt import exchange
from wsopt.errors import InputError
from wsopt.folder import check_target, read_folder, write_folder

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


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("summary",), None, "/summary"),
        (("summary", "tuned"), {"rank": 2}, "/tuned/card"),
        (("machine", "tensor"), {}, "/machine"),
        (("machine", "tile_start"), {}, "/machine"),
        (("certificate", "margin"), -1000, "/certificate/margin"),
    ],
)
def test_a_damaged_schedule_is_told(warm: Path, place: tuple[str, ...], value: object, told: str) -> None:
    file = warm / "small.wsopt" / "schedule.json"
    data = json.loads(file.read_text())
    *outer, last = place
    inner = data
    for key in outer:
        inner = inner[key]
    inner[last] = value
    file.write_text(json.dumps(data))
    assert_says(wsopt(warm, "inspect", "small.wsopt"), 2, "schedule.json", told)


def test_an_edited_graph_is_told_by_what_no_structure_of_it_has(warm: Path) -> None:
    folder = warm / "small.wsopt"
    (folder / "graph.json").write_text(json.dumps(product(k=200)))
    with pytest.raises(InputError) as caught:
        read_folder(folder)
    assert not re.search("[<>]|Structure", str(caught.value))
    assert "cannot be cut to this structure, for its tail 0 (the nearest has " in str(caught.value)


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


OLD = dict.fromkeys(sorted(FILES), "old")


@pytest.fixture
def in_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that cannot exchange two folders in one step."""
    monkeypatch.setattr(exchange, "_exchange", lambda one, other: False)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.usefixtures("in_two_steps")
def test_a_failed_swap_keeps_the_old_build(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "out", OLD)
    rename = Path.rename

    def fail_once(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises((InputError, KeyboardInterrupt)):
        write_folder(tmp_path / "out", TEXTS)
    assert contents(tmp_path / "out") == dict.fromkeys(FILES, b"old")
    assert names(tmp_path) == ["out"]


@pytest.mark.usefixtures("in_two_steps")
def test_a_build_is_replaced_in_two_steps(tmp_path: Path) -> None:
    for text in ("old", "new"):
        write_folder(tmp_path / "out", dict.fromkeys(FILES, text))
        assert contents(tmp_path / "out") == dict.fromkeys(FILES, text.encode())
        assert names(tmp_path) == ["out"]


def test_a_build_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "out", OLD)
    write_folder(tmp_path / "other", OLD)
    if not exchange._exchange(tmp_path / "out", tmp_path / "other"):
        pytest.skip("this system cannot exchange two folders in one step")

    def refuse(self: Path, target: Path) -> Path:
        raise AssertionError(f"{self} is renamed to {target}: in between there is no build")

    monkeypatch.setattr(Path, "rename", refuse)
    write_folder(tmp_path / "out", TEXTS)
    assert contents(tmp_path / "out") == dict.fromkeys(FILES, b"new")
    assert names(tmp_path) == ["other", "out"]


# Where a process is killed, and what is to be seen of the build that it replaces, before anyone clears up.
KILLS = {
    "writing": ("Path", "write_text", "self.name == 'report.txt'", b"old"),
    "between the renames": ("Path", "rename", "self.name == 'new'", None),
    "before the old build is marked as gone": ("Path", "rename", "self.name == 'old'", b"new"),
    "deleting": ("os", "rmdir", "True", b"new"),
    "deleting the old build": ("os", "unlink", "str(self) == 'kernel.py'", b"new"),
}
KILLED = """
import os, signal, sys
from pathlib import Path
from wsopt import exchange, folder

def killing(self, *arguments, **options):
    if {when}:
        os.kill(os.getpid(), signal.SIGKILL)
    return before(self, *arguments, **options)

exchange._exchange = lambda one, other: False
before, {where}.{call} = {where}.{call}, killing
folder.write_folder(Path(sys.argv[1]), dict.fromkeys(sorted(folder.FILES), "new"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", KILLS)
@pytest.mark.parametrize("target", ["out", "other"])
def test_what_a_killed_process_leaves_is_put_right(moment: str, target: str, tmp_path: Path) -> None:
    where, call, when, seen = KILLS[moment]
    write_folder(tmp_path / "out", OLD)
    code = KILLED.format(where=where, call=call, when=when)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")], env=environment(tmp_path), check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert len([name for name in names(tmp_path) if name.startswith(".wsopt-")]) == 1
    if seen is None:
        assert not (tmp_path / "out").exists()
        check_target(tmp_path / target)
    assert contents(tmp_path / "out") == dict.fromkeys(FILES, seen or b"old")
    write_folder(tmp_path / target, dict.fromkeys(FILES, "newest"))
    assert contents(tmp_path / target) == dict.fromkeys(FILES, b"newest")
    if target == "other":
        assert contents(tmp_path / "out") == dict.fromkeys(FILES, seen or b"old")
    assert names(tmp_path) == sorted({"out", target})


def test_a_deleted_build_does_not_come_back(tmp_path: Path) -> None:
    half = tmp_path / ".wsopt-dead" / "gone" / "out"
    half.mkdir(parents=True)
    (half / "kernel.py").write_text("half")
    write_folder(tmp_path / "other", TEXTS)
    assert names(tmp_path) == ["other"]


def test_what_others_have_hidden_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".wsopt-mine").mkdir()
    (tmp_path / ".wsopt-mine" / "thesis.txt").write_text("years")
    (tmp_path / ".wsopt-notes").write_text("mine")
    with exchange.replacement(tmp_path / "slow") as fresh:
        (fresh / "kernel.py").write_text("on its way")
        write_folder(tmp_path / "out", TEXTS)
        assert (fresh / "kernel.py").read_text() == "on its way"
    assert names(tmp_path) == [".wsopt-mine", ".wsopt-notes", "out", "slow"]
    assert contents(tmp_path / "slow") == {"kernel.py": b"on its way"}


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
