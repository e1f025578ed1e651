"""`waylog geo search`, run as a user does."""

from __future__ import annotations

import json

import pytest

from waylog.cli import main


def test_the_best_place_is_printed_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["geo", "search", "Paris, Texas"]) == 0
    assert capsys.readouterr().out == "33.660940,-95.555510  Paris, Texas, United States\n"
    assert main(["geo", "search", "--json", "--limit", "2", "--country", "US", "Paris"]) == 0
    places = json.loads(capsys.readouterr().out)
    assert len(places) == 2
    assert {place["address"]["country_code"] for place in places} == {"us"}


def test_nothing_found_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["geo", "search", "zzzqqq"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("nothing is called 'zzzqqq' in the embedded world")
    assert main(["geo", "search", "--limit", "0", "Vaduz"]) == 1
    assert "--limit" in capsys.readouterr().err
