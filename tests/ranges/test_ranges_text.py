"""The report of a range: its kernels, who serves what, and the curve, for one dimension and for two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from wsopt.folder import RANGE
from wsopt.ranges.build import RangeBuild
from wsopt.ranges.command import compiled_text
from wsopt.ranges.document import FORMAT, RECORD, Member, RangeCertificate, RangeRecord, summary_of
from wsopt.ranges.text import range_text


def _record(
    ends: dict[str, tuple[int, ...]], serves: tuple[int, ...], times: tuple[float, ...]
) -> RangeRecord:
    firsts = tuple(own[0] for own in ends.values())
    lasts = tuple(own[-1] for own in ends.values())
    home = {name: own[0] for name, own in ends.items()}
    return RangeRecord(
        format=FORMAT,
        name="projection",
        machine="h200",
        kernels=(Member("kernels/0", home, "64x64", 1.0), Member("kernels/1", home, "128x64", 1.5)),
        certificate=RangeCertificate(
            2, 0.25, 0.1, 1, True, False, False, False, 1000, 20, 3, ("256x64 (spills)",), (firsts, lasts)
        ),
        ends=ends,
        serves=serves,
        predicted_us=times,
        best_us=tuple(1.0 for _ in times),
    )


def test_one_dimension_has_intervals_and_a_curve() -> None:
    text = range_text(_record({"tokens": (1, 16, 64)}, (0, 0, 1), (1.0, 1.1, 1.25)))
    assert "2 kernels for tokens 1 to 64" in text
    assert "proved: no choice of at most 2 kernels" in text
    assert "The compiler rejected: 256x64 (spills)" in text
    assert "        1 to 16       0     10.00%\n       17 to 64       1     25.00%\n" in text
    assert "       64       1          1.25        1.00  25.00%  " + "#" * 40 in text


def test_one_of_anything_is_told_as_one() -> None:
    record = _record({"tokens": (1, 64)}, (0, 0), (1.0, 1.0))
    certificate = replace(record.certificate, searched=((1,),), considered=1)
    record = replace(record, kernels=record.kernels[:1], certificate=certificate)
    files = {RANGE: RECORD.dump_json(record).decode()}
    text = compiled_text(RangeBuild(files, summary_of(record), 1.0), Path("out"))
    assert "1 kernel for tokens to 64" in text
    assert "1 switch\n  1 structure considered at 1 sample, 20 priced everywhere" in text


def test_two_dimensions_have_a_curve_each() -> None:
    times = (1.0, 1.1, 1.25, 1.0, 1.0, 1.2)
    text = range_text(_record({"batch": (1, 4), "tokens": (1, 16, 64)}, (0, 0, 1, 0, 1, 1), times))
    assert "2 kernels for batch 1 to 4, tokens 1 to 64" in text
    assert "1 of 7 pairs of neighbouring cells differ in their kernel." in text
    batch, tokens = text[text.index("    batch  kernel") :].split("\n\n")[:2]
    assert [line.split()[:2] for line in batch.splitlines()[1:]] == [["1", "1"], ["4", "1"]]
    assert [line.split()[:2] for line in tokens.splitlines()[1:]] == [["1", "0"], ["16", "1"], ["64", "1"]]


def test_a_long_curve_shows_the_greatest_losses() -> None:
    ends = (1, *range(64, 8193, 64))
    times = tuple(1.5 if end == 6400 else 1.0 for end in ends)
    lines = range_text(_record({"tokens": ends}, (0,) * len(ends), times)).splitlines()
    curve = lines[next(n for n, line in enumerate(lines) if "predicted us" in line) + 1 :]
    assert 10 < len(curve) < 40
    assert any(line.split()[0] == "6,400" and "50.00%" in line for line in curve if line)


def test_what_json_prints() -> None:
    summary = summary_of(_record({"tokens": (1, 16, 64)}, (0, 0, 1), (1.0, 1.1, 1.25)))
    assert summary["proved"] == {"worst": True, "mean": False, "switches": False}
    assert summary["kernels"][1]["folder"] == "kernels/1"
    assert summary["searched"] == [[1], [64]]
