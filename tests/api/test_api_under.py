"""`wsopt.compile` under conditions: the schedules that experts publish are asked for, and come out checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import wsopt
from wsopt.errors import InputError
from wsopt.schedule.types import PartitionRole, Schedule


def product() -> wsopt.Graph:
    g = wsopt.Graph("product")
    x, w = g.input("x", (512, 512), "bf16"), g.input("w", (512, 512), "bf16", constant=True)
    g.output(g.cast(g.matmul(x, w, transpose_b=True, name="p"), "bf16", name="y"))
    return g


def weights() -> wsopt.Graph:
    g = wsopt.Graph("weights")
    x, w = g.input("x", (512, 512), "bf16"), g.input("w", (512, 512), "i8", constant=True)
    g.output(g.cast(g.matmul(x, g.cast(w, "bf16"), transpose_b=True, name="p"), "bf16", name="y"))
    return g


def attention() -> wsopt.Graph:
    g = wsopt.Graph("attention")
    q, k, v = (g.input(name, (1, 4, 768, 64), "bf16") for name in "qkv")
    weights = g.softmax(g.mul(g.matmul(q, k, transpose_b=True), 0.125), axis=-1)
    g.output(g.cast(g.matmul(g.cast(weights, "bf16"), v), "bf16", name="o"))
    return g


def consumers(schedule: Schedule) -> int:
    return sum(one.role is PartitionRole.CONSUMER for one in schedule.partitions)


@pytest.mark.solver
@pytest.mark.compiler
@pytest.mark.parametrize(
    ("graph", "under"),
    [
        (product, "columns=64,splits=1,store_warp=yes,ring=2"),
        (product, "columns=64,consumers=2,sharing=ping_pong,splits=1,store_warp=no"),
        (product, "columns=64,consumers=3,splits=1,overlap=none"),
        (weights, "columns=64,consumers=1,transforms=1"),
        (attention, "depth=64,consumers=2,splits=1,overlap=next"),
        (attention, "depth=64,consumers=3,splits=1,overlap=none"),
    ],
)
def test_asked_for_found_proved_emitted_and_run(
    graph: Callable[[], wsopt.Graph], under: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WSOPT_CACHE_DIR", str(tmp_path))
    built = wsopt.compile(graph(), under=under)
    schedule, summary = built.schedule, built.summary
    asked = dict(part.split("=") for part in under.split(","))
    assert (summary["conditions"], summary["status"], summary["gap"]) == (under, "optimal", 0.0)
    lines = summary["verified"]["interpreter"]["lines"]
    assert lines["run"] == lines["of"]
    assert summary["verified"]["interpreter"]["seeds"] == 20
    assert consumers(schedule) == int(asked.get("consumers", consumers(schedule)))
    assert all(depth == int(asked.get("ring", depth)) for _, depth in schedule.rings)
    transforms = sum(one.role is PartitionRole.TRANSFORM for one in schedule.partitions)
    assert transforms == int(asked.get("transforms", 0))
    if "store_warp" in asked:
        has = any(one.role is PartitionRole.STORE_WARP for one in schedule.partitions)
        assert has is (asked["store_warp"] == "yes")
    certificate = json.loads(built.files["schedule.json"])["certificate"]
    assert certificate["considered"] > certificate["solved"] > 0


def test_conditions_that_are_wrong() -> None:
    with pytest.raises(InputError, match=r"^under: there is no field 'consumer'; did you mean consumers"):
        wsopt.compile(product(), under="consumer=2")
    with pytest.raises(InputError, match="does not go with tuned"):
        wsopt.compile(product(), under="consumers=2", tuned=True)
