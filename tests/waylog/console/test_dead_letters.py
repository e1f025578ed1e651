"""`waylog dead-letters`, on a real broker, and on Apache Kafka (-m kafka)."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.waylog.console.terminal import Terminal
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.topics import Topic
from waylog.messages import Rejected, encode


class Letters:
    """A topic of dead letters and the topic that they come from, under unused names."""

    def __init__(self, servers: str) -> None:
        suffix = uuid.uuid4().hex[:8]
        self.topic, self.origin = f"error-{suffix}", f"trips-{suffix}"
        ensure_topics(servers, [Topic(self.topic, 1), Topic(self.origin, 2)])
        self._producer = Producer(producer_config(servers, "test"))
        self._written = 0

    def write(self, raw: bytes, *, of: int | None, reason: str = "not a fix", **more: Any) -> None:
        """Write one; `of` is the offset in partition 0 of the origin, None if there is none."""
        at = {"topic": self.origin, "partition": "0", "offset": str(of)}
        headers = at if of is not None else {"path": "/owntracks"}
        rejected = Rejected(
            reason=reason, source=more.pop("source", "resolver"), time=1000 + self._written,
            raw=raw, device="ann/phone", headers=headers,
        )  # fmt: skip
        self._written += 1
        self._producer.produce(self.topic, encode(rejected), b"ann/phone", **more)
        assert self._producer.flush(30) == 0

    def place(self, offset: int) -> str:
        return f"{self.topic}:0:{offset}"


@pytest.fixture
def letters(terminal: Terminal) -> Letters:
    return Letters(terminal.bootstrap_servers)


def values(terminal: Terminal, topic: str) -> list[str]:
    rows = terminal.rows("consume", topic, "--from", "beginning", "--exit")
    return sorted(str(row["value"]) for row in rows)


def test_letters_are_listed_by_what_is_known_of_them(
    terminal: Terminal,
    letters: Letters,
) -> None:
    letters.write(b"one", of=3)
    letters.write(b"two", of=None, source="owntracks", reason="latitude is missing")
    letters.write(b"three", of=4, reason="latitude \x1b[2J is not on earth")
    rows = terminal.rows("dead-letters", "list", letters.topic)
    assert [row["place"] for row in rows] == [letters.place(number) for number in range(3)]
    assert rows[0] == {
        "place": letters.place(0), "time": 1000, "source": "resolver",
        "origin": f"{letters.origin}:0:3", "device": "ann/phone", "bytes": 3, "reason": "not a fix",
    }  # fmt: skip

    def chosen(*words: str) -> list[int]:
        found = terminal.rows("dead-letters", "list", letters.topic, *words)
        return [int(row["place"].rpartition(":")[2]) for row in found]

    assert chosen("--reason", "Latitude") == [1, 2]
    assert chosen("--source", "resolver", "--origin", letters.origin) == [0, 2]
    assert chosen("--from", "1", "--until", "2") == [1]
    assert chosen("--device", "ben/phone") == []
    assert chosen("--max", "1") == [2]
    table = terminal.run("dead-letters", "list", letters.topic)
    assert "latitude \\x1b[2J is not on earth" in table
    assert "1970-01-01 00:00:01+00:00" in table


def test_one_is_shown_with_all_of_its_bytes(
    terminal: Terminal,
    letters: Letters,
) -> None:
    letters.write(b"plain text", of=3, headers={"traceparent": b"00-1"})
    letters.write(b"\x00\x1b[2J binary \xff", of=4)
    shown = terminal.run("dead-letters", "show", letters.place(0))
    assert "plain text" in shown and '{"traceparent":"00-1"}' in shown
    assert f"origin   {letters.origin}:0:3" in shown
    shown = terminal.run("dead-letters", "show", letters.place(1))
    assert "00000000  00 1b 5b 32 4a 20 62 69 6e 61 72 79 20 ff" in shown
    assert "\x1b" not in shown
    [row] = terminal.rows("dead-letters", "show", letters.place(1))
    assert (row["value"], row["value_base64"]) == (None, "ABtbMkogYmluYXJ5IP8=")
    missing = terminal.run("dead-letters", "show", letters.place(9), status=1)
    assert f"there is no record {letters.place(9)}" in missing
    assert "no partition 7" in terminal.run(
        "dead-letters", "show", f"{letters.topic}:7:0", status=1
    )
    assert "TOPIC:PARTITION:OFFSET" in terminal.run("dead-letters", "show", "error", status=2)


def test_a_record_is_sent_again_once(terminal: Terminal, letters: Letters) -> None:
    letters.write(b"one", of=3, headers={"traceparent": b"00-1"})
    letters.write(b"two", of=4)
    # Another program has refused the same record.
    letters.write(b"one", of=3, source="history")
    letters.write(b"never a record", of=None)
    letters.write(b"half", of=5, reason="not a fix (raw: the first 4 of 9 bytes)")
    replay = ("dead-letters", "replay", letters.topic, "--all")
    said = terminal.run(*replay, "--dry-run")
    assert "2 would be sent, 3 left out, 0 refused" in said
    assert f"{letters.place(3)}: left out: it was never a record: --to names a topic" in said
    assert f"{letters.place(4)}: left out: not all of its bytes were kept" in said
    assert values(terminal, letters.origin) == []

    assert "1 sent again, 0 left out" in terminal.run("dead-letters", "replay", letters.place(0))
    [record] = terminal.rows("consume", letters.origin, "--from", "beginning", "--exit")
    assert (record["key"], record["value"]) == ("ann/phone", "one")
    assert record["headers"] == {"traceparent": "00-1", "waylog.replayed": letters.place(0)}

    assert "1 sent again, 4 left out, 0 refused" in terminal.run(*replay)
    assert "0 sent again, 5 left out, 0 refused" in terminal.run(*replay)
    assert values(terminal, letters.origin) == ["one", "two"]
    again = ("dead-letters", "replay", letters.place(1), "--again", "--json")
    [outcome] = terminal.rows(*again[:-1])
    assert outcome == {
        "place": letters.place(1), "to": letters.origin, "skipped": None, "refused": None,
    }  # fmt: skip
    assert values(terminal, letters.origin) == ["one", "two", "two"]


def test_a_record_that_is_refused_keeps_no_other_from_being_sent(
    terminal: Terminal,
    letters: Letters,
) -> None:
    other = f"{letters.origin}-small"
    terminal.run("topics", "create", other, "--config", "max.message.bytes=300")
    letters.write(b"one", of=None)
    letters.write(random.Random(1).randbytes(1000), of=None)
    letters.write(b"two", of=None)
    replay = ("dead-letters", "replay", letters.topic, "--source", "resolver", "--to", other)
    said = terminal.run(*replay, status=1)
    assert f"{letters.place(1)}: refused: " in said
    assert "2 sent again, 0 left out, 1 refused" in said
    assert values(terminal, other) == ["one", "two"]
    # What was refused was not marked.
    assert "0 sent again, 2 left out, 1 refused" in terminal.run(*replay, status=1)


def test_dead_letters_of_connect_are_sent_as_they_were(
    terminal: Terminal,
    letters: Letters,
) -> None:
    prefix = "__connect.errors."
    producer = Producer(producer_config(terminal.bootstrap_servers, "test"))
    headers: dict[str, str | bytes | None] = {
        "own": b"1", f"{prefix}topic": letters.origin.encode(), f"{prefix}partition": b"1",
        f"{prefix}offset": b"8", f"{prefix}exception.message": b"no JSON",
    }  # fmt: skip
    producer.produce(letters.topic, b"{", b"k", headers=headers)
    assert producer.flush(30) == 0
    assert "1 sent again" in terminal.run(
        "dead-letters", "replay", letters.topic, "--reason", "no json"
    )
    [record] = terminal.rows("consume", letters.origin, "--from", "beginning", "--exit")
    assert (record["key"], record["value"]) == ("k", "{")
    assert record["headers"] == {"own": "1", "waylog.replayed": letters.place(0)}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("error",), "which records?"),
        (("error", "location", "--all"), "one topic at a time"),
        (("error:0:1", "error", "--all"), "either one topic or places"),
        (("error:0:1", "--all"), "places go without --all"),
    ],
)
def test_what_is_not_clear_is_not_sent(
    terminal: Terminal,
    words: tuple[str, ...],
    why: str,
) -> None:
    assert why in terminal.run("dead-letters", "replay", *words, status=2)
