"""Two builds held against each other: every part has its row, and sentences say what differs, and why."""

from __future__ import annotations

import dataclasses
import re

import report_examples as examples

from wsopt.program.types import Sharing
from wsopt.report.against import Side, against_data, against_text, reasons, rows
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.types import EpilogueBuffers, Partition, PartitionRole
from wsopt.schedule.verified import VerifiedSchedule, for_trial

OURS = Side("this build", examples.verified(), examples.CERTIFICATE)


def slower(**changes: float | str) -> Side:
    """The hand-made build, of whose prediction some parts are changed: cycles count as nanoseconds."""
    schedule = examples.schedule()
    prediction = dataclasses.replace(schedule.prediction, **changes)  # type: ignore[arg-type]
    found = for_trial(OURS.verified, schedule=dataclasses.replace(schedule, prediction=prediction))
    certificate = dataclasses.replace(examples.CERTIFICATE, conditions="ring=5")
    return Side("the build under ring=5", found, certificate)


def row(part: str, theirs: Side) -> tuple[str, str, str]:
    (found,) = (one for one in rows(OURS, theirs) if one.part == part)
    return found.ours, found.theirs, found.more


def test_nothing_differs() -> None:
    theirs = slower()
    assert {one.more for one in rows(OURS, theirs)} == {"same"}
    told = reasons(OURS, theirs)
    assert told[:2] == (
        "Proved: the build under ring=5 is the best of 1,000 structures.",
        "It is predicted as fast as this build, 14.00 us.",
    )
    assert not any(text.startswith(("On the SMs", "A tile's epilogue", "It has")) for text in told)


def test_parts_of_the_time_are_told_largest_first() -> None:
    theirs = slower(main=10192.0, fill=400.0, power=1010.0, cycles=13710.0, sm_us=13.71, microseconds=15.71)
    assert row("cycles: main loop", theirs) == ("8,192", "10,192", "+2,000")
    assert row("cycles: fill of the ring", theirs) == ("700", "400", "-300")
    assert row("us: predicted", theirs) == ("14.00", "15.71", "+1.71")
    told = reasons(OURS, theirs)
    assert told[1] == "It is predicted 1.71 us (12.21 %) slower than this build: 15.71 us against 14.00 us."
    assert told[2] == (
        "On the SMs it takes 1,710 cycles more: 2,000 cycles more in the main loop, 300 cycles fewer in the fill of "
        "the ring and 10 cycles more in what the power limit adds."
    )


def test_the_parts_add_up_to_the_difference() -> None:
    theirs = slower(main=9000.0, epilogue=10.0, tail=700.0, power=3.0, cycles=10913.0)
    (total,) = re.findall(r"On the SMs it takes ([\d,]+) cycles fewer: (.*)\.", reasons(OURS, theirs)[2])
    signs = {"more": 1, "fewer": -1}
    parts = re.findall(r"([\d,]+) cycles (more|fewer)", total[1])
    assert sum(int(number.replace(",", "")) * signs[sign] for number, sign in parts) == 10913 - 12000
    assert total[0] == "1,087"


def test_why_the_main_loop_differs() -> None:
    told = " ".join(reasons(OURS, slower(main=10240.0)))
    # 16 iterations of two waves, whose products hold the tensor core for 512 cycles each.
    held = OURS.products
    assert held == 16 * 512
    assert f"hold the tensor core for {held:,.0f} cycles, 80.0 % of its main loop" in told
    assert f"in this build for {held:,.0f} cycles, 100.0 %." in told
    assert (
        "Its loop: tensor core binds; II is its least, 512 cycles. With its waits an iteration takes 640."
        in told
    )
    assert "The loop of this build: tensor core binds; II is its least, 512 cycles." in told


def test_what_is_no_number_is_told_where_it_differs() -> None:
    schedule = OURS.verified.schedule
    structure = dataclasses.replace(schedule.structure, sharing=Sharing.PING_PONG, persistent=False)
    partitions = (*schedule.partitions, Partition(PartitionRole.STORE_WARP, 0, 1, 24))
    changed = dataclasses.replace(
        schedule,
        structure=structure,
        partitions=partitions,
        buffers=EpilogueBuffers(2, 0),
        rings=(("ring", 3),),
    )
    program = dataclasses.replace(OURS.verified.program, structure=structure)
    theirs = Side("other", _verified(changed, program), examples.CERTIFICATE)
    assert row("sharing", theirs)[:2] == ("cooperative", "ping_pong")
    assert row("persistent", theirs)[:2] == ("yes", "no")
    assert row("tile", theirs)[:2] == ("128x128x64", "64x128x64")
    assert row("role store_warp", theirs)[:2] == ("none", "1 x 1 warps, 24 registers")
    assert row("staging buffers", theirs)[:2] == ("1", "2")
    assert row("slots of ring", theirs) == ("5", "3", "-2")
    assert not [one for one in rows(OURS, theirs) if one.part in ("rows", "input buffers", "role consumer")]
    (epilogue,) = (text for text in reasons(OURS, theirs) if text.startswith("A tile's epilogue"))
    assert "under the loop of another consumer; in this build" in epilogue


def _verified(schedule: object, program: object) -> VerifiedSchedule:
    return VerifiedSchedule(schedule, program, OURS.verified.machine, examples.SEAL)  # type: ignore[arg-type]


def test_what_bounds_a_kernel_is_told_if_not_the_sms() -> None:
    told = reasons(OURS, slower(bound_by="device memory", microseconds=20.0))
    assert "Its time is bound by device memory, that of this build by the SMs." in told
    assert not [text for text in reasons(OURS, slower()) if "is bound by" in text]


def test_a_proof_that_is_none_is_not_told_as_one() -> None:
    certificate: Certificate = dataclasses.replace(examples.CERTIFICATE, gap=0.031, rank=1)
    theirs = dataclasses.replace(slower(), certificate=certificate)
    assert (
        reasons(OURS, theirs)[0]
        == "Not proved: the build under ring=5 is one of 1,000 structures, gap 3.10 %."
    )
    second = dataclasses.replace(slower(), certificate=dataclasses.replace(examples.CERTIFICATE, rank=2))
    assert reasons(OURS, second)[0].startswith("Not proved: ")


def test_text_and_data_say_the_same() -> None:
    theirs = slower(main=9192.0, cycles=13000.0, sm_us=13.0, microseconds=15.0)
    text, data = against_text(OURS, theirs), against_data(OURS, theirs)
    flat = " ".join(text.split())
    assert all(sentence in flat for sentence in data["reasons"])
    assert data["slower_us"] == 1.0
    for part in data["parts"]:
        assert " ".join([part["part"], part["ours"], part["against"], part["more"]]).strip() in flat
    assert text.startswith("by_hand: this build against the build under ring=5\n====")
    assert (data["against"]["conditions"], data["ours"]["conditions"]) == ("ring=5", "")
