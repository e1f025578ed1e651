"""Libraries that only some commands need."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from waylog.extras import EXTRAS, extra_of, install_command, is_installed


def test_every_extra_can_be_installed() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) <= set(project["optional-dependencies"])
    assert install_command("spark") == "pip install 'waylog[spark]'"


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("pyspark.sql", "up", "spark"),
        ("paho", "bridge", "bridge"),
        ("paho.mqtt.client", "load", "load"),
        ("paho", "up", "replay"),
        ("lxml", "bridge", "replay"),
        ("google.protobuf.message", "consume", "protobuf"),
        ("nothing", "replay", None),
    ],
)
def test_a_module_is_brought_by_the_extra_of_its_command(
    module: str, command: str, extra: str | None
) -> None:
    assert extra_of(module, command) == extra


def test_an_extra_is_there_when_all_of_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "half", ("json", "no_such_module"))
    monkeypatch.setitem(EXTRAS, "half-way", ("no_such_package.module",))
    monkeypatch.setitem(EXTRAS, "whole", ("json", "socket"))
    assert not is_installed("half")
    assert not is_installed("half-way")
    assert is_installed("whole")
