"""The page of published figures and of roles on two cards is made from the committed files, whose figures hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from wsopt.errors import InputError
from wsopt.validate import cards_docs
from wsopt.validate.cards import Problems, card_of, compared, load_cards
from wsopt.validate.published import NEAR, Published, load_published, predict, write_published

DOCS = Path(__file__).parents[2] / "docs"
PROBLEMS = DOCS.parent / "problems"
FILES = DOCS / "blackwell"
ENTRIES = load_published(FILES / "published.json").entries


def test_the_page_is_what_the_files_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blackwell").symlink_to(FILES)
    monkeypatch.chdir(tmp_path)
    assert cards_docs.main(["blackwell/published.json", "blackwell/roles.json", "-o", "page.md"]) == 0
    made = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert made == (DOCS / "blackwell.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("one", ENTRIES, ids=lambda one: one.name)
def test_a_large_difference_is_explained(one: Published) -> None:
    assert bool(one.difference) >= (abs(one.ratio - 1) > NEAR), one.ratio
    assert {"title", "address", "read"} == one.source.keys()
    assert one.source["address"].startswith("https://")


def test_published_schedules_are_met_and_are_not_all_fitted() -> None:
    given = [one for one in ENTRIES if one.under]
    near = [one for one in given if abs(one.ratio - 1) <= NEAR]
    assert len(near) >= 10
    assert sum(not one.fitted for one in near) >= 4
    assert all(one.difference for one in given if one not in near)
    assert sum(not one.fitted for one in ENTRIES) >= 8


@pytest.mark.parametrize(
    "name",
    [
        "8192 x 8192 x 512, f16",
        "4096 x 4096 x 4096, bf16, one tile a block",
        "attention of 4096 positions, causal, bf16, flash-attn-4",
    ],
)
def test_a_prediction_is_the_models_of_today(name: str) -> None:
    one = next(one for one in ENTRIES if one.name == name)
    assert predict(one) == one.predicted


def test_published_files_survive_being_written(tmp_path: Path) -> None:
    figures = load_published(FILES / "published.json")
    write_published(tmp_path / "again.json", figures)
    assert load_published(tmp_path / "again.json") == figures
    write_published(tmp_path / "wrong.json", replace(figures, entries=(replace(ENTRIES[0], unit="miles"),)))
    with pytest.raises(InputError, match="is in miles; known are us, TFLOP/s, GB/s"):
        load_published(tmp_path / "wrong.json")


def roles() -> Problems:
    return load_cards(FILES / "roles.json")


def test_roles_are_of_one_card_each_and_of_what_both_have() -> None:
    found = roles()
    assert found.cards == (card_of("h200"), card_of("b200"))
    assert {name for name, _, _ in found.rows} == {path.stem for path in PROBLEMS.glob("*.json")}
    for name, first, second in found.rows:
        assert (first.columns, second.sets >= 1) == (0, True), name
        assert (second.columns > 0) == (second.products > 0), name
        assert second.columns <= 512, name
        assert ("mma_warp" in {role for role, _, _ in second.roles}) == (second.products > 0), name


def test_why_two_schedules_differ_is_told_by_what_one_has_alone() -> None:
    cards = roles().cards
    told = {name: [*cards_docs.differences(*sides, cards)] for name, *sides in roles().rows}
    assert "f8 sums are f32's in the tensor core, so consumers add up none" in told["gemm_f8"]
    assert "one set of sums, for two of 512 columns are more than 512" in told["gemm_bf16"]
    assert "64 multiply-adds a byte of 16-bit operands instead of 43" in told["gemm_bf16"]
    assert "one set of sums, for a block has one tile" in told["gemm_2048"]
    assert "one set of sums, for consumers are in the loop" in told["rms_norm_matmul"]
    assert "2 sets of sums: an epilogue runs under the next tile's products" in told["gemm_swiglu"]
    assert told["rms_norm"] == []
    assert told["attention"] == [
        "one set of sums, for a block has one tile",
        "a correction warpgroup rescales sums, off the way of those who compute",
        "rows keep a maximum that has grown by less than 2^8, and with it their sums",
        "operands in their scores' columns",
        "1/8 of exp2 on the FMA pipe, for one takes the time of 256 multiply-adds instead of 128",
        "128 rows a consumer instead of 64, one for each lane of tensor memory",
    ]
    assert "operands in columns of their own" in told["attention_d64"]
    halves = "pairs of blocks: each copies half of one operand, which the products of both read"
    assert [name for name, own in told.items() if halves in own] == ["gemm_ragged", "gemm_residual", "router"]
    assert "K-blocks of 64 instead of 128" in told["attention_lse"]
    assert not any("correction" in one for one in told["linear_attention_causal"])
    same = roles().rows[0][1]
    assert [*cards_docs.differences(same, replace(same, splits=4, swap=True), cards)] == [
        "sums split 4 ways instead of 1", "operands have changed sides",
    ]  # fmt: skip


def test_folders_without_common_builds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no build that both have"):
        compared(tmp_path, tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "schedule.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="is no build of one kernel: KeyError"):
        compared(tmp_path, tmp_path)
