"""What one sender may have kept in topic `error`, and what is left of the rest."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from gateway.limits.error_bytes import BEGINNING, CUT, ErrorBytes
from gateway.limits.token_buckets import TokenBuckets
from tests.manual_clock import ManualClock
from waylog.messages import Rejected, decode_rejected

PER_MINUTE = 10_000


def rejected(size: int = 30_000, user: str | None = "ada", topic: str = "t") -> Rejected:
    return Rejected(
        reason="junk", source="mqtt", time=1, raw=b"x" * size, user=user, headers={"topic": topic}
    )


def is_whole(value: bytes) -> bool:
    return CUT not in (decode_rejected(value).headers or {})


def test_a_minutes_worth_is_kept_whole_and_a_burst_of_sixteen() -> None:
    clock = ManualClock()
    kept = ErrorBytes(TokenBuckets(clock=clock), PER_MINUTE)
    size = len(kept.of_user("bob", rejected()))
    whole = [is_whole(kept.of_user("ada", rejected())) for _ in range(10)]
    assert whole == [number < 16 * PER_MINUTE // size for number in range(10)]
    clock.now += 60 * size / PER_MINUTE
    assert is_whole(kept.of_user("ada", rejected()))
    assert not is_whole(kept.of_user("ada", rejected()))


def test_what_is_cut_keeps_its_reason_and_says_how_much_it_was() -> None:
    kept = ErrorBytes(TokenBuckets(), PER_MINUTE)
    for _ in range(10):
        value = kept.of_user("ada", rejected(topic="level/" * 10_000))
    found = decode_rejected(value)
    assert (found.reason, found.source, found.user) == ("junk", "mqtt", "ada")
    assert found.raw == b"x" * BEGINNING
    assert found.headers is not None
    assert found.headers["raw-bytes"] == "30000"
    assert "may have kept" in found.headers[CUT]
    assert len(value) < 2_000


def test_names_of_any_length_are_cut_and_the_size_before_an_earlier_cut_is_kept() -> None:
    kept = ErrorBytes(TokenBuckets(), PER_MINUTE)
    headers = {"n" * 60_000: "1", "raw-bytes": "500000"}
    message = Rejected(reason="junk", source="mqtt", time=1, raw=b"x" * 300_000, headers=headers)
    for _ in range(10):
        value = kept.of_user("ada", message)
    found = decode_rejected(value)
    assert found.headers is not None
    assert found.headers.keys() == {"raw-bytes", CUT}
    assert found.headers["raw-bytes"] == "500000"
    assert len(value) < 2_000


def test_the_users_of_all_workers_have_one_bound_each(tmp_path: Path) -> None:
    with (
        closing(TokenBuckets(tmp_path / "quotas")) as one,
        closing(TokenBuckets(tmp_path / "quotas")) as other,
    ):
        workers = [ErrorBytes(buckets, PER_MINUTE) for buckets in (one, other)]
        for number in range(10):
            value = workers[number % 2].of_user("ada", rejected())
        assert not is_whole(value)
        assert is_whole(workers[0].of_user("bob", rejected()))


def test_strangers_are_bounded_by_address_and_together() -> None:
    kept = ErrorBytes(TokenBuckets(), PER_MINUTE)
    named = rejected(user="u" * 60_000)
    for _ in range(10):
        value = kept.of_stranger("192.0.2.1", named)
    assert not is_whole(value)
    assert len(value) < 2_000
    # Whoever they say they are, they use up nothing of that user's.
    assert is_whole(kept.of_user("u" * 60_000, rejected()))
    whole = [is_whole(kept.of_stranger(f"192.0.2.{number}", rejected())) for number in range(2, 50)]
    assert whole[0]
    assert not any(whole[20:])


def test_addresses_of_one_network_are_one_stranger() -> None:
    kept = ErrorBytes(TokenBuckets(), PER_MINUTE)
    values = [kept.of_stranger(f"2001:db8::{number}", rejected()) for number in range(10)]
    assert not is_whole(values[-1])


def test_all_strangers_together_have_four_shares() -> None:
    kept = ErrorBytes(TokenBuckets(clock=ManualClock()), PER_MINUTE)
    size = len(kept.of_user("bob", rejected()))
    addresses = [f"192.0.2.{number}" for number in range(10)]
    whole = [is_whole(kept.of_stranger(each, rejected())) for each in addresses for _ in range(3)]
    assert sum(whole) == 4 * 16 * PER_MINUTE // size


def test_a_stranger_owes_nothing_for_what_the_others_left_no_room_for() -> None:
    clock = ManualClock()
    kept = ErrorBytes(TokenBuckets(clock=clock), PER_MINUTE)
    for number in range(50):
        kept.of_stranger(f"192.0.2.{number}", rejected())
    late = "198.51.100.1"
    assert not any(is_whole(kept.of_stranger(late, rejected())) for _ in range(10))
    # All strangers get back four times as much as one of them.
    clock.now += 3 * 60
    assert all(is_whole(kept.of_stranger(late, rejected())) for _ in range(2))
