"""Writes the friendships of the user database to topic `friendship`, for topologies that read it.

The topic is a copy of the table: a record for each user and friend who is shown exact positions, of
whom neither was revoked, a tombstone when that ends. What is there is compared with what should be
whenever this process begins to write, so that nothing depends on how the writer before it has
ended; afterwards the users whose rights have changed are looked at. One process of a machine
writes, the one that holds the lock for notices. So the topic belongs to one user database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.fixes.log_topics import await_topics
from gateway.users.changed_users import ChangedUsers
from gateway.users.rights import RightsTable
from waylog.friendships import Friendship, decode_friendship, friendship_key, parse_friendship_key
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import AppendError
from waylog.kafka.topics import FRIENDSHIP, FRIENDSHIP_TOPIC
from waylog.malformed import MALFORMED
from waylog.process.machine_lock import MachineLock
from waylog.sealing.sealing import LogProducer, repeated_opener

logger = logging.getLogger(__name__)

#: Records that wait for the log at once.
_AT_ONCE: Final = 1_000
#: Stands for a time that no friendship has.
_UNREADABLE: Final = -1

#: Since when (ms) a user's devices may be seen, by user and friend.
Friendships = Mapping[tuple[str, str], int]


def differences(
    stored: Friendships, wanted: Friendships, of: Iterable[str] | None = None
) -> dict[tuple[str, str], int | None]:
    """Return what has to be written so that the topic has what the table has; None ends one.

    `of` are the users whose friendships `wanted` has; None: all users'.
    """
    names = None if of is None else frozenset(of)

    def concerned(pair: tuple[str, str]) -> bool:
        return names is None or not names.isdisjoint(pair)

    changes: dict[tuple[str, str], int | None] = {
        pair: since for pair, since in wanted.items() if stored.get(pair) != since
    }
    changes |= {pair: None for pair in stored if pair not in wanted and concerned(pair)}
    return changes


class FriendshipTopic:
    """Keeps the topic like the table. Used on one event loop."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        rights: RightsTable,
        producer: LogProducer,
        once: MachineLock,
    ) -> None:
        self._servers = bootstrap_servers
        self._client_id = client_id
        self._rights = rights
        self._producer = producer
        self._is_read = False
        #: What the topic has, by the answers of the log.
        self._stored: dict[tuple[str, str], int] = {}
        behind = f"topic {FRIENDSHIP} is behind the friendships"
        self._changed: Final = ChangedUsers(once, self._update, behind)
        self.rights_changed: Final = self._changed.rights_changed
        self.run: Final = self._changed.run

    async def _update(self, changed: set[str] | None) -> None:
        """Write what differs; raises AppendError, and what it was for differs still."""
        if not self._is_read:
            await self._read()
            self._is_read = True
        shown = await asyncio.to_thread(self._rights.friendships, changed)
        # Those who see squares are left out: a meeting would tell the position behind them.
        wanted = {pair: each.since for pair, each in shown.items() if each.terms.is_exact}
        changes = list(differences(self._stored, wanted, changed).items())
        for begin in range(0, len(changes), _AT_ONCE):
            await asyncio.gather(
                *(self._append(pair, since) for pair, since in changes[begin : begin + _AT_ONCE])
            )

    async def _read(self) -> None:
        """Learn what the topic has."""
        await await_topics(self._servers, [FRIENDSHIP_TOPIC])
        caught_up = asyncio.Event()
        reader = BatchReader(
            self._servers,
            f"{self._client_id}-{FRIENDSHIP}",
            FRIENDSHIP,
            asyncio.get_running_loop(),
            on_records=self._take,
            on_caught_up=caught_up.set,
            opened=repeated_opener(self._servers),
        )
        reader.start()
        try:
            await caught_up.wait()
        finally:
            await reader.close()

    def _take(self, records: Sequence[Any]) -> None:
        for record in records:
            key, value = record.key(), record.value()
            try:
                name = (key or b"").decode()
                pair = parse_friendship_key(name)
            except MALFORMED:
                logger.warning("a record of topic %s is of no user and friend", FRIENDSHIP)
                continue
            if value is None:
                self._stored.pop(pair, None)
                continue
            try:
                self._stored[pair] = decode_friendship(name, value).since
            except MALFORMED:
                # It is written again, or ended.
                self._stored[pair] = _UNREADABLE

    async def _append(self, pair: tuple[str, str], since: int | None) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def delivered(error: AppendError | None, _position: Any) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        value = None if since is None else msgspec.json.encode(Friendship(since))
        self._producer.send(FRIENDSHIP, value, friendship_key(*pair).encode(), None, delivered)
        await done
        if since is None:
            self._stored.pop(pair, None)
        else:
            self._stored[pair] = since
