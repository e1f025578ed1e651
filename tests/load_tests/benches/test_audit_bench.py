from __future__ import annotations

import json

import pytest

from load_tests.benches.audit_bench import main


def test_the_cost_of_a_record_is_measured(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--records", "2000", "--devices", "20"]) == 0
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [each["asked"] for each in found] == ["day", "device"]
    assert all(each["status"] == 0 and each["cpu_us"] > 0 for each in found)
    assert all(each["memory_mb"] > 20 for each in found)
