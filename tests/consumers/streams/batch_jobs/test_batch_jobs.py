"""Each topology over replayed tracks tells what a batch job finds in the Parquet of the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import duckdb
import msgspec
import pytest

from tests.consumers.streams.batch_jobs.comparisons import COMPARISONS
from tests.consumers.streams.batch_jobs.history import open_history, write_history
from tests.consumers.streams.batch_jobs.replay import Replay, loggers, people
from tests.consumers.streams.chain import chain_of, partition_of

_BATCH = 500


class Replayed(NamedTuple):
    replay: Replay
    history: duckdb.DuckDBPyConnection


@pytest.fixture(scope="module", params=[people, loggers])
def replayed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replayed]:
    replay_of: Callable[[], Replay] = request.param
    replay = replay_of()
    folder = tmp_path_factory.mktemp("history") / "fixes"
    write_history(folder, replay.fixes, partition_of)
    with open_history(folder) as history:
        yield Replayed(replay, history)


@pytest.mark.parametrize("name", COMPARISONS)
def test_results_are_those_of_a_batch_job_over_the_history(name: str, replayed: Replayed) -> None:
    replay, history = replayed
    properties, check = COMPARISONS[name]
    if name == "trips":
        properties = properties | {"time_zone": replay.zone}
    elif name == "meetings":
        properties = properties | {"wait_s": replay.wait_s}
    fences = {key: msgspec.json.encode(fence) for key, fence in replay.fences.items()}
    chain = chain_of(name, properties, fences, replay.friends)
    chain.now_ms = max(fix.time for fix in replay.fixes)
    for begin in range(0, len(replay.fixes), _BATCH):
        chain.send(*replay.fixes[begin : begin + _BATCH])
        if name in ("heat-map", "meetings"):
            chain.pass_time()
    if name == "meetings":
        chain.pass_time(20_000_000_000)
    check(history, replay, chain.outputs)
