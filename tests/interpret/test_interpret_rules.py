"""One broken rule at a time in a small good kernel: the fault, its class and its message."""

from __future__ import annotations

import re

import interpret_kernels as kernels
import pytest
from interpret_breaks import SYNCHRONIZATION, Break
from interpret_products import PRODUCTS
from interpret_refusals import OPERATIONS
from interpret_splits import SPLITS

from wsopt.interpret import DeadlockError, execute
from wsopt.interpret.strategy import STRATEGIES

KERNELS = (kernels.scale, kernels.attention, kernels.handoff, kernels.tensor_memory, kernels.split_sums)
CASES = {case.__name__: case for case in KERNELS}
SEEDS = range(len(STRATEGIES))


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken", [*SYNCHRONIZATION, *OPERATIONS, *PRODUCTS, *SPLITS], ids=lambda broken: broken.rule
)
def test_rule(broken: Break) -> None:
    case = CASES[broken.kernel]()
    assert broken.old in case.source
    source = case.source.replace(broken.old, broken.new)
    found = [case.failure(source, seed) for seed in SEEDS]
    assert all(found), f"passes under some seed: {found}"
    wanted = [text for text in found if text and text.startswith(broken.fault.__name__)]
    assert any(re.search(broken.message, text) for text in wanted), found


def test_deadlock_names_every_partition() -> None:
    case = kernels.scale()
    with pytest.raises(DeadlockError) as caught:
        execute(case.source.replace("8192)", "8208)"), case.inputs, seed=0)
    lines = str(caught.value).splitlines()
    assert lines[0] == "kernel.py: no partition can go on"
    assert [line.split(":")[2].split(",")[0].strip() for line in lines[1:]] == ["kernel", "worker", "loader"]


def test_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wsopt.interpret.machine.STEP_LIMIT", 40)
    case = kernels.scale()
    with pytest.raises(DeadlockError, match="livelock"):
        execute(case.source, case.inputs, seed=0)
