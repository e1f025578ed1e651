"""The connector in a worker, on a real broker and a real PostgreSQL, while both are killed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest

from tests.consumers.connect.connect_process import (
    ConnectProcess,
    Topic,
    create_topic,
    headers_of,
    produce,
    wait_until,
)
from tests.consumers.connect.fix_load import FixLoad
from tests.consumers.connect.postgresql.postgres_server import PASSWORD, PostgresServer
from tests.consumers.connect.sink_harness import fix

pytestmark = pytest.mark.early

MakeWorker = Callable[..., ConnectProcess]


def config(postgres: PostgresServer, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "PostgreSqlSink",
        "topics": topic,
        "tasks.max": "2",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "connection.url": postgres.url,
        "connection.password": PASSWORD,
        "insert.mode": "upsert",
        "pk.mode": "record_value",
        "pk.fields": "id",
        "auto.create": "true",
        "table.name.format": "rows",
        "retry.backoff.ms": "200",
        "consumer.override.group.id": topic,
        **{name.replace("__", "."): text for name, text in more.items()},
    }


@pytest.fixture
def topic(servers: str) -> str:
    name = f"fixes-{uuid.uuid4().hex[:8]}"
    create_topic(servers, name, 4)
    return name


def all_are_there_once(postgres: PostgresServer, sent: int) -> bool:
    if postgres.count("rows") < sent:
        return False  # there may be no table yet
    rows = postgres.query('SELECT count(*), count(DISTINCT id), min(id), max(id) FROM "rows"')
    return rows == [(sent, sent, fix(0)["id"], fix(sent - 1)["id"])]


def test_fixes_become_rows_and_an_erased_address_goes(
    servers: str, make_worker: MakeWorker, postgres: PostgresServer, topic: str
) -> None:
    worker = make_worker(servers)
    worker.start()
    worker.create("rows", config(postgres, topic))
    addresses = f"addresses-{topic}"
    create_topic(servers, addresses)
    worker.create(
        "addresses",
        config(
            postgres,
            addresses,
            pk__mode="record_key",
            pk__fields="device",
            delete__enabled="true",
            table__name__format="address",
        ),
    )
    produce(servers, topic, [json.dumps(fix(number)).encode() for number in range(50)])
    produce(servers, addresses, [b'{"device":"a/b","display_name":"Vaduz"}'], key=b"a/b")
    produce(servers, addresses, [b'{"device":"a/c","display_name":"Vaduz"}'], key=b"a/c")
    wait_until(lambda: postgres.count("rows") == 50, "50 rows", worker)
    wait_until(lambda: postgres.count("address") == 2, "two addresses", worker)
    produce(servers, addresses, [None], key=b"a/b")
    wait_until(
        lambda: postgres.query("SELECT device FROM address") == [("a/c",)], "the erasure", worker
    )
    assert PASSWORD not in worker.output


def test_every_id_is_there_once_whatever_is_killed(
    servers: str, make_worker: MakeWorker, postgres: PostgresServer, topic: str
) -> None:
    worker = make_worker(servers, **{"consumer.session.timeout.ms": "6000"})
    worker.start()
    worker.create("rows", config(postgres, topic))
    load = FixLoad(servers, topic)

    def go_on(rows: int) -> None:
        reached = postgres.count("rows") + rows
        wait_until(lambda: postgres.count("rows") >= reached, f"{rows} more rows", worker)

    with load.running():
        go_on(1000)
        for _ in range(3):
            postgres.stop("immediate")
            worker.wait_for("records come again")
            postgres.start()
            go_on(1000)
            worker.kill()
            worker.start()
            worker.create("rows", config(postgres, topic))
            go_on(1000)
    wait_until(lambda: all_are_there_once(postgres, load.sent), f"{load.sent} rows", worker)
    assert PASSWORD not in worker.output


def test_a_poison_record_goes_to_the_dead_letters_with_its_reason(
    servers: str, make_worker: MakeWorker, postgres: PostgresServer, topic: str
) -> None:
    worker = make_worker(servers)
    worker.start()
    letters = f"letters-{topic}"
    worker.create(
        "rows",
        config(
            postgres,
            topic,
            errors__tolerance="all",
            errors__deadletterqueue__topic__name=letters,
            errors__deadletterqueue__topic__replication__factor="1",
            errors__deadletterqueue__context__headers__enable="true",
        ),
    )
    poison = json.dumps(fix(5) | {"lat": "north"}).encode()
    values = [json.dumps(fix(number)).encode() for number in range(100)]
    produce(servers, topic, [*values[:5], poison, b"no json", *values[6:]], partition=0)
    wait_until(lambda: postgres.count("rows") == 99, "99 rows", worker)
    dead = Topic(servers, letters)
    wait_until(lambda: len(dead.read()) == 2, "two dead letters", worker)
    by_value = {each.value(): headers_of(each) for each in dead.records}
    headers = by_value[poison]
    assert headers["__connect.errors.topic"] == topic
    assert headers["__connect.errors.offset"] == "5"
    assert headers["__connect.errors.stage"] == "TASK_PUT"
    assert 'type double precision: "north"' in headers["__connect.errors.exception.message"]
    dead.close()


def test_a_database_that_is_away_is_caught_up(
    servers: str, make_worker: MakeWorker, postgres: PostgresServer, topic: str
) -> None:
    worker = make_worker(servers)
    worker.start()
    postgres.stop()
    try:
        worker.create("rows", config(postgres, topic))
        produce(servers, topic, [json.dumps(fix(number)).encode() for number in range(3000)])
        for _ in range(2):  # each task says so once
            worker.wait_for("records come again: PostgreSQL at 127.0.0.1")
        assert worker.states("rows") == ["RUNNING"] * 3
    finally:
        postgres.start()
    wait_until(lambda: all_are_there_once(postgres, 3000), "3000 rows", worker)


def test_what_is_wrong_with_a_configuration_is_refused_with_its_property(
    servers: str, make_worker: MakeWorker, postgres: PostgresServer
) -> None:
    worker = make_worker(servers)
    worker.start()
    wrong = config(postgres, "t", pk__fields="", connection__url="postgresql://a:s3cr3t@db/x")
    status, answer = worker.ask("POST", "/connectors", {"name": "rows", "config": wrong})
    assert status == 400
    assert "pk.fields" in answer["message"]
    assert "connection.password" in answer["message"]
    assert "s3cr3t" not in answer["message"] + worker.output
    wrong = config(postgres, "t", connection__password="s3cr3t")
    worker.create("rows", wrong)
    worker.await_states("rows", "RUNNING", "FAILED", "FAILED")
    assert "password authentication failed" in worker.trace("rows")
    assert "s3cr3t" not in worker.trace("rows") + worker.output
