from __future__ import annotations

from pathlib import Path

import pytest

from load_tests.outcome import Outcome, SecondsRecorder, read_outcomes


def test_outcomes_of_several_processes_add_up_second_by_second(tmp_path: Path) -> None:
    for index in range(2):
        outcome = Outcome(run="run123", protocol="MQTT", devices=10, began=100.0 + index)
        outcome.ended = 110.0 + index
        recorder = SecondsRecorder(outcome)
        recorder.connected = 10
        recorder.fixes_sent(5)
        recorder.fixes_acknowledged(0.020)
        recorder.fixes_acknowledged(1.5, 2)
        recorder.address_pushed(0.1, 400)
        recorder.cut().time = 101.0
        recorder.cut().time = 102.0
        outcome.write(tmp_path, index, "anna", [])
    total = read_outcomes(sorted(tmp_path.glob("outcome-*.json")))
    assert (total.devices, total.sent, total.acknowledged, total.pushes) == (20, 10, 6, 2)
    assert (total.began, total.ended) == (100.0, 111.0)
    assert [(each.time, each.sent, each.connected) for each in total.seconds] == [
        (101.0, 10, 20),
        (102.0, 0, 20),
    ]
    assert total.acknowledgements == [(20_000, 2), (1_500_000, 4)]
    assert total.push_latencies == [(100_000, 2)]
    with pytest.raises(ValueError, match="no outcome"):
        read_outcomes([])
