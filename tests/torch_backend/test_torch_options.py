"""Options of the backend are checked, all faults at once, each with what is allowed."""

from __future__ import annotations

import pytest

from wsopt.errors import InputError
from wsopt.torch.options import Options, read_options


def test_nothing_given_is_the_default() -> None:
    assert read_options(None, None) == read_options({}, "default") == Options()


def test_the_mode_measure_is_an_option_too() -> None:
    assert read_options(None, "measure").take == "measure"


def test_the_mode_async_is_an_option_too() -> None:
    assert read_options(None, "async").wait is False


@pytest.mark.parametrize(
    ("options", "mode", "told"),
    [
        ({"exekute": "kernel"}, None, "/exekute: unknown option.*did you mean.*execute"),
        ({"execute": "gpu"}, None, "/execute: 'gpu'; wants one of kernel, reference, simulation"),
        ({"rest": 1}, None, "/rest: 1; wants one of inductor, eager"),
        ({"workers": -1}, None, "/workers: -1; wants a number"),
        ({"workers": True}, None, "/workers: True"),
        ({"scheduler": 8786}, None, "/scheduler: 8786; wants the address of a Dask scheduler"),
        ({"machine": None}, None, "/machine: None; wants a card's name"),
        ({"inductor": 1}, None, "/inductor: 1; wants names of settings"),
        ({"inductor": {"debug": True}, "rest": "eager"}, None, "/inductor: does not go with rest"),
        ({"wait": 0}, None, "/wait: 0; wants True or False"),
        ({"wait": False, "take": "measure"}, None, "/wait: take 'measure' waits"),
        ({}, "max-autotune", "/mode: 'max-autotune'"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], mode: str | None, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_options(options, mode)


def test_a_setting_that_inductor_does_not_have_is_named() -> None:
    pytest.importorskip("torch")
    read_options({"inductor": {"triton.cudagraphs": True}}, None)
    with pytest.raises(InputError, match=r"/inductor/triton.cudagraf: .*did you mean .triton.cudagraph"):
        read_options({"inductor": {"triton.cudagraf": True}}, None)


def test_all_faults_are_told_together() -> None:
    with pytest.raises(InputError) as error:
        read_options({"take": "some", "rest": "none"}, None)
    assert [problem.pointer for problem in error.value.problems] == ["/rest", "/take"]
