from __future__ import annotations

import msgspec
import pytest

from load_tests.benches.bench import main


@pytest.mark.long
@pytest.mark.spark
def test_log_resolver_and_history_are_measured_on_the_same_fixes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--only", "log", "--records", "5000", "--json"]) == 0
    results = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["name"] for each in results] == [
        "log: produce",
        "resolver: catch up",
        "log: consume",
        "history: cold start to end",
    ]
    assert all(each["rate"] > 100 and each["passed"] for each in results)
