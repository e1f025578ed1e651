"""What is told when a topology of a file starts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.consumers.running import WAYLOG, Broker, Process, await_condition
from waylog.kafka.clients import ensure_topics

MODULE = """
from consumers.streams.builder import stream
from waylog.messages import Fix

topology = stream("own", "location", Fix).map(lambda fix: {value}, int).to("own-output")
"""


def test_an_output_that_is_missing_and_a_namesake_are_told(
    broker: Broker, start_topology: Callable[..., Process], tmp_path: Path
) -> None:
    ensure_topics(broker.address)
    paths = [tmp_path / f"own{number}.py" for number in range(2)]
    for number, path in enumerate(paths):
        path.write_text(MODULE.format(value=number))
    refused = Process(
        *("streams", "run", "--module", str(paths[0]), "--bootstrap-servers", broker.address)
    )
    assert refused.wait(60) == 1
    assert refused.output.splitlines()[-1] == (
        "waylog streams: topology own writes topic own-output, which does not exist: "
        "`waylog topics create own-output` makes it"
    )
    words = ["topics", "create", "own-output", "--bootstrap-servers", broker.address]
    subprocess.run([*WAYLOG, *words], check=True, capture_output=True, timeout=60)
    first = start_topology("--module", paths[0])
    again: Any = None

    def is_told() -> bool:
        # The first one is in the group once it has joined.
        nonlocal again
        again = start_topology("--module", paths[1])
        told = "group streams-own has members of another topology" in again.output
        again.stop()
        return told

    await_condition(is_told, 60, "the warning")
    copy = tmp_path / "copy.py"
    copy.write_text(paths[0].read_text())
    assert first.stop() == 0
    start_topology("--module", paths[0])
    assert "members of another" not in start_topology("--module", copy).output
