"""What dead letters say, whoever has written them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.odd_records import MALFORMED_VALUES
from waylog.kafka.dead_letters import RecordPlace, parse_place, read_dead_letter
from waylog.messages import Rejected, encode, shortened


class Record:
    """A record of partition 0 at offset 7, made without a log."""

    def __init__(
        self, value: bytes | None, key: bytes | None = None, headers: Any = None, topic: str = "dlq"
    ) -> None:
        self._parts = (topic, key, value, headers)

    def topic(self) -> str:
        return self._parts[0]

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return (1, 5000)

    def key(self) -> bytes | None:
        return self._parts[1]

    def value(self) -> bytes | None:
        return self._parts[2]

    def headers(self) -> Any:
        return self._parts[3]


def test_a_refused_message_is_read_with_its_origin() -> None:
    at = {"topic": "location", "partition": "2", "offset": "9"}
    rejected = Rejected(
        reason="not a fix", source="resolver", time=4, raw=b"\xff", device="a/1", headers=at
    )
    letter = read_dead_letter(Record(encode(rejected), b"a/1", [("traceparent", b"t")], "error"))
    assert letter.place == RecordPlace("error", 0, 7)
    assert letter.origin == RecordPlace("location", 2, 9)
    assert (letter.time, letter.reason, letter.source, letter.device) == (
        4, "not a fix", "resolver", "a/1",
    )  # fmt: skip
    assert (letter.key, letter.value, letter.is_whole) == (b"a/1", b"\xff", True)
    assert letter.headers == [("traceparent", b"t")]


def test_what_was_shortened_is_not_whole() -> None:
    whole = Rejected(reason="bad", source="x", time=1, raw=b"raw")
    for reason in ("bad (raw: the first 3 of 9 bytes)", "bad (cut from 9 bytes)"):
        cut = Rejected(reason=reason, source="x", time=1, raw=b"raw")
        assert not read_dead_letter(Record(encode(cut))).is_whole
    assert not read_dead_letter(Record(encode(shortened(whole)))).is_whole
    letter = read_dead_letter(Record(encode(whole)))
    assert letter.is_whole and letter.origin is None


def test_a_record_of_connect_is_read_from_its_headers() -> None:
    told = {
        "topic": "trips", "partition": "1", "offset": "3", "connector.name": "files",
        "stage": "VALUE_CONVERTER", "exception.message": "no JSON",
    }  # fmt: skip
    headers: list[tuple[str, bytes]] = [("own", b"1")]
    headers += [("__connect.errors." + name, text.encode()) for name, text in told.items()]
    letter = read_dead_letter(Record(b"{", b"k", headers))
    assert letter.origin == RecordPlace("trips", 1, 3)
    assert (letter.reason, letter.source) == ("VALUE_CONVERTER: no JSON", "files")
    assert (letter.key, letter.value, letter.headers) == (b"k", b"{", [("own", b"1")])


def test_malformed_records_are_shown_as_they_are() -> None:
    for value in (*MALFORMED_VALUES, None):
        letter = read_dead_letter(Record(value, b"\xff"))
        assert letter.value == value or letter.source
        assert letter.place == RecordPlace("dlq", 0, 7)


texts = st.text(max_size=9) | st.sampled_from(["topic", "partition", "offset", "stage"])


@given(
    st.none() | st.binary(max_size=60),
    st.none() | st.binary(max_size=9),
    st.lists(
        st.tuples(
            texts | texts.map("__connect.errors.{}".format), st.none() | st.binary(max_size=9)
        ),
        max_size=6,
    ),
)
def test_no_record_is_too_odd(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    letter = read_dead_letter(Record(value, key, headers))
    assert letter.origin is None or parse_place(str(letter.origin)) == letter.origin


@given(st.text(max_size=30))
def test_a_place_is_read_as_it_is_written(text: str) -> None:
    place = parse_place(text)
    assert place is None or str(place).split(":")[0] == text.split(":", maxsplit=1)[0]
    assert parse_place("a:1:02x") is None
