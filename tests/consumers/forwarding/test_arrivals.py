"""Which records of topic `location` a forwarding takes."""

from __future__ import annotations

from typing import NamedTuple

from consumers.forwarding.arrivals import arrived
from waylog.history.erasures import Erasure, Erasures


class Message(NamedTuple):
    """A message, as far as it is looked at."""

    name: bytes | None
    content: bytes | None
    stored_ms: int = 5

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.content

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.stored_ms

    def timestamp(self) -> tuple[int, int]:
        return 1, self.stored_ms


def fix(device: str) -> bytes:
    return b'{"device":"' + device.encode() + b'"}'


def test_fixes_of_a_device_go_under_its_own_name_alone() -> None:
    own = Message(b"anna/phone", fix("anna/phone"))
    others = [
        Message(b"anna/phone", fix("bert/phone")),
        Message(b"bert/phone", fix("anna/phone")),
        Message(b"anna/phone", b'{"lat":1}'),
        Message(b"anna/phone", b"\xff"),
        Message(b"\xff", fix("anna/phone")),
        Message(None, fix("anna/phone")),
        Message(b"anna/phone", None),
    ]
    [found] = arrived([*others, own, *others], Erasures())
    assert (found.user, found.device, found.stored_ms) == ("anna", "phone", 5)
    assert (found.record.key, found.record.value) == ("anna/phone", own.content)


def test_what_was_stored_before_an_erasure_is_left_out() -> None:
    erasures = Erasures()
    erasures.add(Erasure("anna/phone", 6))
    came = [Message(b"anna/phone", fix("anna/phone"), each) for each in (5, 6, 7)]
    assert [each.stored_ms for each in arrived(came, erasures)] == [7]
