from __future__ import annotations

import msgspec
import pytest

from load_tests.bench import main


def test_the_log_alone_is_measured_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "log", "--records", "5000", "--json"]) == 0
    results = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["name"] for each in results] == ["log: produce", "log: consume"]
    assert all(each["rate"] > 100 for each in results)
