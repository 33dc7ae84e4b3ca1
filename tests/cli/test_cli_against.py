"""`wsopt compile --under` and `wsopt inspect --against`: another schedule asked for, solved, kept and compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_runs import FILES, Compiled, assert_says, contents, product, write, wsopt

UNDER = "consumers=2,sharing=ping_pong,ring=2"


@pytest.fixture(scope="session")
def asked(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build under conditions, beside the free one and in its cache."""
    folder = tmp_path_factory.mktemp("asked") / "here"
    shutil.copytree(compiled.folder, folder)
    done = wsopt(folder, "compile", "small.json", "--under", UNDER, "-o", "asked")
    assert done.returncode == 0, done.stderr
    assert f"small on h200 under {UNDER}: optimal, gap 0.0%" in done.stdout
    return folder / "asked"


@pytest.fixture
def both(asked: Path, tmp_path: Path) -> Path:
    """A folder of the test's own with both builds and their warm cache."""
    shutil.copytree(asked.parent, tmp_path / "both")
    return tmp_path / "both"


def test_the_build_says_what_it_was_asked_for(asked: Path) -> None:
    data = json.loads((asked / "schedule.json").read_text())
    assert data["certificate"]["conditions"] == data["summary"]["conditions"] == UNDER
    assert (data["schedule"]["structure"]["sharing"], data["schedule"]["rings"]) == (
        "ping_pong",
        [["ring", 2]],
    )
    report = (asked / "report.txt").read_text()
    assert f"Conditions: {UNDER}. What follows is of schedules that meet them." in report
    assert "Conditions" not in (asked.parent / "small.wsopt" / "report.txt").read_text()


def test_the_build_runs(asked: Path) -> None:
    done = wsopt(asked.parent, "run", "asked", "--seeds", "3")
    assert done.returncode == 0, done.stderr
    assert "3 seeds on cpu" in done.stdout


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        ("consumers=1", "Structure(rows="),
        ("ring=3", "ring has 2 slots, 3 are asked for"),
        ("consumer=2", "/certificate/conditions: there is no field 'consumer'; did you mean consumers?"),
    ],
)
def test_conditions_that_it_does_not_meet_are_told(
    conditions: str, told: str, asked: Path, tmp_path: Path
) -> None:
    shutil.copytree(asked, tmp_path / "asked")
    file = tmp_path / "asked" / "schedule.json"
    file.write_text(file.read_text().replace(f'"conditions": "{UNDER}"', f'"conditions": "{conditions}"'))
    assert_says(wsopt(tmp_path, "inspect", "asked"), 2 if "consumer=" in conditions else 4, told)


def test_solved_compared_and_kept(both: Path) -> None:
    done = wsopt(both, "inspect", "small.wsopt", "--against", UNDER, "--keep", "kept")
    assert done.returncode == 0, done.stderr
    first, under, *_ = done.stdout.splitlines()
    assert first == f"small: this build against the build under {UNDER}"
    assert under == "=" * len(first)
    for part in (
        "sharing",
        "slots of ring",
        "cycles: main loop",
        "us: predicted",
        "shared memory, bytes",
    ):
        assert f"\n{part} " in done.stdout
    assert contents(both / "kept") == contents(both / "asked")
    again = wsopt(both, "inspect", "small.wsopt", "--against", "kept")
    assert (
        again.stdout.replace(f"kept under {UNDER}", f"the build under {UNDER}").splitlines()[2:5]
        == (done.stdout.splitlines()[2:5])
    )


def test_as_json(both: Path) -> None:
    done = wsopt(both, "inspect", "small.wsopt", "--against", "asked", "--json")
    found = json.loads(done.stdout)
    assert (found["ours"]["conditions"], found["against"]["conditions"]) == ("", UNDER)
    assert found["slower_us"] == found["against"]["predicted_us"] - found["ours"]["predicted_us"] > 0
    parts = {part["part"]: part for part in found["parts"]}
    assert parts["slots of ring"]["against"] == "2"
    assert any("slower than this build" in text for text in found["reasons"])


def test_what_cannot_be_met_says_what_to_leave_out(warm: Path) -> None:
    done = wsopt(warm, "compile", "small.json", "--under", "rows=64,consumers=1,ring=30", "-o", "out")
    assert_says(done, 3, "small under rows=64,consumers=1,ring=30: no structure fits", "by shared memory")
    assert not (warm / "out").exists()
    told = "leave out ring=30: under rows=64,consumers=1 there is one, "
    assert told in done.stderr
    remedy = wsopt(warm, "compile", "small.json", "--under", "rows=64", "--under", "consumers=1", "-o", "out")
    assert remedy.returncode == 0, remedy.stderr
    assert json.loads((warm / "out" / "schedule.json").read_text())["schedule"]["structure"]["consumers"] == 1


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("compile", "small.json", "--under", "consumer=2"), 2, "--under: there is no field 'consumer'"),
        (("compile", "small.json", "--under", ""), 2, "'' is not field=value"),
        (("compile", "small.json", "--under", "ring=2", "--tuned"), 2, "made without conditions"),
        (("inspect", "small.wsopt", "--against", "rings=2"), 2, "did you mean ring?"),
        (
            ("inspect", "small.wsopt", "--against", "absent"),
            2,
            "neither a folder that compile wrote nor conditions",
        ),
        (("inspect", "small.wsopt", "--against", "cache"), 2, "cache/schedule.json: cannot be read"),
        (("inspect", "small.wsopt", "--against", "small.wsopt", "--keep", "x"), 2, "is a build already"),
        (("inspect", "small.wsopt", "--keep", "x"), 2, "goes with --against"),
        (("inspect", "small.wsopt", "--against", "ring=2", "--what-if"), 2, "give one of --what-if"),
        (
            ("inspect", "small.wsopt", "--against", "ring=2", "--keep", "cache"),
            2,
            "which is no part of a build",
        ),
    ],
)
def test_mistakes(arguments: tuple[str, ...], status: int, told: str, warm: Path) -> None:
    assert_says(wsopt(warm, *arguments), status, told)


def test_a_build_of_another_graph(compiled: Compiled, warm: Path) -> None:
    shutil.copytree(compiled.build, warm / "other")
    write(warm / "other", product("wider", n=1024))
    shutil.copytree(compiled.build, warm / "renamed")
    write(warm / "renamed", product("renamed"))
    done = wsopt(warm, "inspect", "small.wsopt", "--against", "renamed")
    assert_says(done, 2, "renamed: is a build of another graph, renamed; give one of the same graph, small")
    assert set(contents(warm / "renamed")) == FILES
