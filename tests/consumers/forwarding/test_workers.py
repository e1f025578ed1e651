"""Several workers share the partitions, and one of them is killed while it sends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient

from tests.consumers.connect.http.http_server import HttpServer, Seen
from tests.consumers.forwarding.running import LOOPBACK, Platform, keys_by_lat, lats
from tests.consumers.running import Process, await_condition
from waylog.kafka.clients import client_config
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import LOCATION

OPTIONS = (*LOOPBACK, "--session-timeout", "3", "--retry-backoff-max", "2")
USERS = [f"user{number}" for number in range(12)]


class Members:
    """The members of the group `forwarding`."""

    def __init__(self, platform: Platform) -> None:
        self._admin = AdminClient(client_config(platform.servers, "test"))

    def have_partitions(self, count: int) -> bool:
        """Tell whether there are so many members, each with some partitions."""
        found = self._admin.describe_consumer_groups(["forwarding"])["forwarding"].result()
        shares = [len(each.assignment.topic_partitions) for each in found.members]
        return len(shares) == count and min(shares) > 0


@contextmanager
def workers(platform: Platform, count: int) -> Iterator[list[Process]]:
    platform.stop_workers()
    started = [platform.start(*OPTIONS) for _ in range(count)]
    members = Members(platform)
    await_condition(lambda: members.have_partitions(count), 60, "all have partitions")
    yield started
    platform.stop_workers()


def newest(platform: Platform, user: str) -> int:
    """Return when the newest fix of a user was stored."""
    return max(
        each.timestamp()[1]
        for each in read_topic(platform.servers, LOCATION)
        if (each.key() or b"").startswith(f"{user}/".encode())
    )


def check_kills(platform: Platform, count: int, kills: int, fixes: int) -> None:
    """Kill workers, each while it sends, and start others in their places."""
    server, down = HttpServer(), HttpServer()
    server.answer = lambda seen: (404, "no such device") if _is_refused(seen) else None
    with server.running(), workers(platform, count) as running:
        for user in USERS:
            platform.put(user, 1, f"{server.url}/")
        platform.put("refused", 1, f"{server.url}/refused")
        platform.put("away", 1, f"{down.url}/")
        sent: list[str] = []
        away = platform.fixes("away/phone", 5)
        for _ in range(kills):
            before = len(server.seen)
            for user in USERS:
                sent += platform.fixes(f"{user}/phone", fixes)
            await_condition(lambda: len(server.seen) > before + fixes, 60, "some have come")  # noqa: B023
            running.pop(0).stop(signal.SIGKILL)
            running.append(platform.start(*OPTIONS))
        await_condition(lambda: Members(platform).have_partitions(count), 60, "all have partitions")
        refused = platform.fixes("refused/phone", 3)
        await_condition(lambda: set(sent) <= set(lats(server)), 90, "all have come")
        # None of them stalls, whoever has its partition now.
        last = [lat for user in USERS for lat in platform.fixes(f"{user}/phone", 1)]
        await_condition(lambda: set(last) <= set(lats(server)), 60, "none stalls")
        with down.running():
            await_condition(lambda: set(away) <= set(lats(down)), 60, "it is caught up with")
        assert set(lats(server)) == {*sent, *last, *refused}
        assert all(len(each) == 1 for each in keys_by_lat(server).values()), "the same key"
        for user in USERS:
            await_condition(lambda: platform.shown(user, 1)["state"] == "live", 60, "live")  # noqa: B023
    for user in USERS:
        shown = platform.shown(user, 1)
        assert (shown["forwarded"], shown["error"], shown["missed"]) == (
            *(newest(platform, user), None, 0),
        )
    assert platform.shown("refused", 1)["refused"] == 3


def _is_refused(seen: Seen) -> bool:
    return seen.path.startswith("/refused")


def test_nothing_is_lost_or_stalls_when_one_of_two_workers_is_killed(platform: Platform) -> None:
    check_kills(platform, 2, 1, 60)


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 2, 3])
def test_nothing_is_lost_or_stalls_when_workers_are_killed_again_and_again(
    platform: Platform, count: int
) -> None:
    check_kills(platform, count, 5, 100)
