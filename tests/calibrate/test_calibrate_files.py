"""Machine files and raw measurements: written, read again, and held against the shipped card."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from calibrate_samples import synthetic

from wsopt.calibrate.command import compare_files, machine_file, main, report, run_calibrate
from wsopt.calibrate.fits import FORMULAS, figures
from wsopt.calibrate.machine_file import base_figures, base_name, differences, machine_text
from wsopt.calibrate.samples import Document, document_from_file
from wsopt.errors import InputError, RequirementError
from wsopt.machine import Machine, Origin, load_machine

ROOT = Path(__file__).parents[2]
CALIBRATION = ROOT / "docs" / "calibration"
SHIPPED = ROOT / "wsopt" / "machine" / "data"


def written(tmp_path: Path, document: Document) -> Machine:
    path = tmp_path / "mine.toml"
    path.write_text(machine_file(document, "mine"), encoding="utf-8")
    return load_machine(path)


def test_the_machine_file_goes_through_the_loader(tmp_path: Path, document: Document) -> None:
    machine, shipped = written(tmp_path, document), load_machine("h200")
    assert (machine.name, machine.title) == ("mine", "NVIDIA H200, calibrated 2026-11-21")
    assert machine.scalar["max"] == 64
    assert machine.scalar_unit == shipped.scalar_unit
    assert machine.tile_start["row_max"] == 70
    assert machine.latency.mbarrier_wake == 52
    assert machine.kernel_launch_us == 0.75
    assert machine.origin("scalar.exp2") is Origin.MEASURED
    assert machine.source("scalar.exp2") == "measured: wsopt calibrate, 2026-11-21, +- 0.08"
    assert (machine.sm_count, machine.tensor) == (shipped.sm_count, shipped.tensor)
    assert machine.sources["sm_count"] == shipped.sources["sm_count"]


def test_figures_fitted_to_kernels_stay_and_are_noted(tmp_path: Path, document: Document) -> None:
    machine, shipped = written(tmp_path, document), load_machine("h200")
    assert machine.sustained_clock_mhz == shipped.sustained_clock_mhz
    assert machine.power_clock_mhz == shipped.power_clock_mhz
    text = machine_file(document, "mine")
    assert (
        "# sustained_clock_mhz: 1640 +- 8.2 by itself; the base's 1790 stays, fitted to whole kernels" in text
    )
    assert "differs: sustained_clock_mhz: 1640, the base has 1790, fitted to whole kernels, stays" in (
        report(document)
    )


def test_every_formula_names_a_figure_of_the_card() -> None:
    assert set(FORMULAS) <= set(base_figures("h200_rated"))
    assert "wave_tail_cycles" not in FORMULAS


def test_an_h200_starts_from_what_its_vendor_states(document: Document) -> None:
    text = machine_file(document, "h200")
    tables = tomllib.loads(text)
    assert (tables["base"], tables["name"]) == ("h200_rated", "h200")
    assert text == machine_text(document, figures(document), "h200", "h200_rated")
    # The base reaches down to its architecture; a nearer figure is the one that counts.
    base, under = base_figures("h200_rated"), base_figures("sm_90")
    assert base["sustained_clock_mhz"]["value"] == 1790
    assert set(under) < set(base)
    assert base["power_idle"] == under["power_idle"]


def test_the_shipped_card_is_what_was_measured() -> None:
    document = document_from_file(CALIBRATION / "h200.json")
    shipped = SHIPPED / "h200.toml"
    assert machine_file(document, "h200").encode("utf-8") == shipped.read_bytes()
    # Of one that was measured again it is not: the text follows the measurements.
    again = document_from_file(CALIBRATION / "h200_again.json")
    assert machine_file(again, "h200").encode("utf-8") != shipped.read_bytes()


def test_every_value_is_in_the_file(document: Document) -> None:
    tables = tomllib.loads(machine_file(document, "mine"))
    kept = {item.name for item in differences(figures(document), base_figures("h200_rated")) if item.kept}
    for figure in figures(document):
        table, _, key = figure.name.rpartition(".")
        place = tables.get(table, {}) if table else tables
        if figure.name not in kept and key in place:
            assert place[key]["value"] == pytest.approx(figure.value, rel=1e-3)


@pytest.mark.parametrize(
    ("device", "card"),
    [
        ("NVIDIA H200", "h200_rated"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
    ],
)
def test_the_base_is_the_card_of_the_device(device: str, card: str) -> None:
    assert base_name(device) == card


def test_a_device_without_a_card_is_named() -> None:
    with pytest.raises(InputError, match="no machine file to start from for 'NVIDIA A100'; have h100_pcie"):
        base_name("NVIDIA A100")


def test_raw_measurements_are_read_as_written(tmp_path: Path) -> None:
    document = dataclasses.replace(synthetic(noise=0.02), failures={"sync.wait.1": "a hang"})
    path = tmp_path / "raw.json"
    path.write_text(document.to_text(), encoding="utf-8")
    assert document_from_file(path) == document


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no calibration's JSON"),
        ("[]", "is no calibration's JSON"),
        ('{"samples": {"a": ["x"]}}', "is no calibration's JSON"),
        (None, "cannot be read: No such file"),
    ],
)
def test_files_that_are_none_are_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "raw.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        document_from_file(path)


def test_the_command_compares_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"{name}.json" for name in "abc"]
    for path, shift in zip(paths, (1.0, 1.0, 1.2), strict=True):
        path.write_text(synthetic(noise=0.002, shift=shift).to_text(), encoding="utf-8")
    assert compare_files(paths[0], paths[1])[0]
    assert main(["--compare", str(paths[0]), str(paths[1])]) == 0
    assert main(["--compare", str(paths[0]), str(paths[2])]) == 4
    assert "figures agree within the stated spreads" in capsys.readouterr().out


def test_the_command_line_compares_too() -> None:
    command = [sys.executable, "-m", "wsopt", "calibrate", "--compare"]
    files = [str(CALIBRATION / f"h200{end}.json") for end in ("", "_again")]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("figures agree within the stated spreads\n")


def test_a_machine_without_torch_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(RequirementError, match="torch is not installed"):
        run_calibrate(tmp_path / "mine.toml", [], None, "mine")
    assert not list(tmp_path.iterdir())


def test_words_that_fit_nothing_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "scalar,tenser"]) == 2
    told = capsys.readouterr().err
    assert "no measurement's name begins with 'tenser'; families are block, cast, latency" in told


def test_the_committed_calibrations_agree() -> None:
    first, second = (CALIBRATION / f"h200{end}.json" for end in ("", "_again"))
    agree, told = compare_files(first, second)
    assert agree, told
