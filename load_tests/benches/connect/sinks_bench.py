"""Measures the sinks of `waylog connect`: records a second, and CPU for a record.

    python -m load_tests.benches.connect.sinks_bench --kind postgresql --records 300000
    python -m load_tests.benches.connect.sinks_bench --kind postgresql --records 60000 --refused 10
    python -m load_tests.benches.connect.sinks_bench --kind http --records 60000

Fixes of topic `location` go into a table of a PostgreSQL that is started
for it (upsert by id), or one by one to an HTTP server in a process of its own. CPU is that of the
worker's process, librdkafka's threads included, from the connector's creation until the last
record; that of PostgreSQL and of the HTTP server is not in it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import Producer

from load_tests.benches.connect.files_bench import broker_process, measured, worker_process
from load_tests.benches.connect.targets import answering_server, postgres_process
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.topics import Topic
from waylog.messages import Fix, encode, fix_id

_TOPIC: Final = Topic("bench-fixes", 4, {})
_DEVICES: Final = 1000
_LIMIT_S: Final = 600.0
_LAST_STORED: Final = "SELECT count(*) FROM fixes WHERE id = ANY(%s)"
_LETTERS: Final = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "bench-letters",
    "errors.deadletterqueue.topic.replication.factor": "1",
}


@dataclass(frozen=True)
class _Loaded:
    """The records of the topic that a target accepts."""

    count: int
    #: The id of each device's last one: a target that has them all has nearly all records.
    last_ids: list[str]


def main(argv: list[str] | None = None) -> int:
    """Run the measurement; print a line of JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.connect.sinks_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kind", choices=("postgresql", "http"), required=True)
    parser.add_argument("--records", type=int, default=300_000, help="default: %(default)s")
    parser.add_argument(
        "--poll", type=int, default=3000, help="records that a task gets at once: %(default)s"
    )
    parser.add_argument("--tasks", type=int, default=1, help="default: %(default)s")
    parser.add_argument(
        "--converter",
        choices=("JsonConverter", "StringConverter"),
        default="StringConverter",
        help="of values; a text is read by the sink: %(default)s",
    )
    parser.add_argument(
        "--refused",
        type=float,
        default=0.0,
        help="percent of records that PostgreSQL refuses, for dead letters: %(default)s",
    )
    parser.add_argument("--postgis", action="store_true", help="with a column for places")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="waylog-bench-") as name:
        folder = Path(name)
        with broker_process(folder) as servers:
            ensure_topics(servers, [_TOPIC])
            loaded = _load(servers, arguments.records, arguments.refused / 100)
            target = _to_postgresql if arguments.kind == "postgresql" else _to_http
            with (
                worker_process(folder, servers) as worker,
                target(arguments, loaded) as (config, done),
            ):
                common = {
                    "topics": _TOPIC.name,
                    "tasks.max": str(arguments.tasks),
                    "value.converter": arguments.converter,
                    "value.converter.schemas.enable": "false",
                    "consumer.override.max.poll.records": str(arguments.poll),
                } | (_LETTERS if loaded.count < arguments.records else {})
                found = measured(
                    *(worker, arguments.kind, common | config, arguments.records, done)
                )
                print(json.dumps(found), flush=True)
    return 0


def _load(servers: str, records: int, refused: float) -> _Loaded:
    """Append fixes, a share of which has a text for a number; return the others."""
    chance, count, last_ids = random.Random(4711), 0, dict[str, str]()
    producer = Producer(producer_config(servers, "bench") | {"linger.ms": 100})
    for number in range(records):
        user = f"user{number % _DEVICES}"
        device, time_ms = f"{user}/phone", 1_761_994_805_000 + number
        lat, lon = 47.0 + number % 1000 / 1e4, 9.5 + number % 977 / 1e4
        fix = Fix(
            id=fix_id(device, time_ms, lat, lon),
            device=device,
            user=user,
            lat=lat,
            lon=lon,
            time=time_ms,
            received=time_ms + 900,
            accuracy=14.0,
            altitude=61.5,
            speed=6.4,
            course=141.0,
            battery=72.0,
            trigger="p",
            source="owntracks",
            attributes={"conn": "m", "tid": "ph"},
        )
        value = encode(fix)
        if chance.random() < refused:
            value = msgspec.json.encode(msgspec.to_builtins(fix) | {"altitude": "high"})
        else:
            count += 1
            last_ids[device] = fix.id
        while True:
            try:
                producer.produce(_TOPIC.name, value, device)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(_LIMIT_S) == 0
    return _Loaded(count, list(last_ids.values()))


@contextmanager
def _to_postgresql(
    arguments: Any, loaded: _Loaded
) -> Iterator[tuple[dict[str, str], Callable[[], bool]]]:
    import psycopg

    with (
        postgres_process() as server,
        psycopg.connect(server.url, autocommit=True) as connection,
    ):
        if arguments.postgis:
            connection.execute("CREATE EXTENSION postgis")

        def done() -> bool:
            # Counting rows all the time would cost the server more than writing them, and its
            # statistics are up to ten seconds behind once nothing is written.
            try:
                (last,) = connection.execute(_LAST_STORED, [loaded.last_ids]).fetchone() or (0,)
            except psycopg.errors.UndefinedTable:
                return False
            if last < len(loaded.last_ids):
                return False
            (rows,) = connection.execute("SELECT count(*) FROM fixes").fetchone() or (0,)
            return bool(rows >= loaded.count)

        config = {
            "connector.class": "PostgreSqlSink",
            "connection.url": server.url,
            "table.name.format": "fixes",
            "insert.mode": "upsert",
            "pk.mode": "record_value",
            "pk.fields": "id",
            "auto.create": "true",
            "geometry.field": "place" if arguments.postgis else "",
        }
        yield config, done


@contextmanager
def _to_http(_: Any, loaded: _Loaded) -> Iterator[tuple[dict[str, str], Callable[[], bool]]]:
    with answering_server() as server:
        config = {
            "connector.class": "HttpSink",
            "url": server.url,
            "template": "traccar-json",
            "connections.max": "16",
        }
        yield config, lambda: server.requests >= loaded.count


if __name__ == "__main__":
    sys.exit(main())
