"""Users' shares of what all have in common, so that none can leave the others nothing.

Over its share a user is refused something new (0x97), or its own oldest goes; everybody else goes
on. Of a process: with several workers each has its part of every pool (gateway.mqtt.listening.options).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from gateway.limits.pools import Shares
from gateway.mqtt.packets.packets import Will
from gateway.mqtt.sessions.session import Account, Pool, Session
from gateway.mqtt.settings import Settings

_SUBSCRIPTION_BYTES: Final = 300
_LEVEL_BYTES: Final = 300  # of the trie, for each level of a filter with a wildcard
_WILL_BYTES: Final = 500


class UserAccount:
    """Of one user, as long as it has a session here."""

    __slots__ = ("account", "offline", "publishes", "sessions")

    def __init__(self, held: Pool, publishes: Pool) -> None:
        self.account = Account(held)
        self.publishes = Account(publishes)
        #: Sessions of clients that are away; the one away longest is first.
        self.offline: OrderedDict[Session, None] = OrderedDict()
        self.sessions = 0


class UserAccounts:
    """The shares of all users."""

    def __init__(self, settings: Settings) -> None:
        # Twice the pool is a pool of which one may have all (gateway.limits.pools.Shares).
        times = 1 if settings.users_share else 2

        def each(share: int, total: int) -> int:
            return share if settings.users_share else total

        self._held = Pool(
            times * settings.held_bytes_max,
            each(settings.held_bytes_per_user_max, settings.held_bytes_max),
        )
        in_flight = settings.all_publish_bytes_in_flight_max
        self._publishes = Pool(
            2 * in_flight, each(settings.publish_bytes_in_flight_per_user_max, 2 * in_flight)
        )
        self.subscriptions = Shares(
            times * settings.subscription_bytes_max,
            each(settings.subscription_bytes_per_user_max, settings.subscription_bytes_max),
        )
        self.connections = Shares(
            times * settings.connections_max,
            each(settings.connections_per_user_max, settings.connections_max),
        )
        #: By user, or by `MqttServer.party_of_unknown` before it is known.
        self.incomplete = Shares(
            times * settings.incomplete_bytes_max,
            each(settings.incomplete_bytes_per_user_max, settings.incomplete_bytes_max),
        )
        self.unread = Shares(
            times * settings.unread_bytes_max,
            each(settings.unread_bytes_per_user_max, settings.unread_bytes_max),
        )
        self._users: dict[str, UserAccount] = {}
        self.offline_max = each(
            settings.offline_sessions_per_user_max, settings.offline_sessions_max
        )

    def of(self, user: str) -> UserAccount:
        """The share of a user that has a session."""
        return self._users[user]

    def begin(self, session: Session) -> None:
        """A session begins."""
        user = session.identity.user
        share = self._users.get(user)
        if share is None:
            share = self._users[user] = UserAccount(self._held, self._publishes)
        share.sessions += 1
        session.account = share.account

    def end(self, session: Session) -> None:
        """A session is over."""
        user = session.identity.user
        share = self._users.get(user)
        if session.account is None or share is None:
            return
        session.close_account()
        share.offline.pop(session, None)
        share.sessions -= 1
        if not share.sessions:
            del self._users[user]

    def has_room(self, user: str, size: int) -> bool:
        """Tell whether a user may hold so much more of messages and wills."""
        user_account = self._users.get(user)
        account = Account(self._held) if user_account is None else user_account.account
        if not account.take(size):
            return False
        account.give_back(size)
        return True

    @property
    def users(self) -> int:
        """The number of users."""
        return len(self._users)

    @property
    def held_bytes(self) -> int:
        """Of messages that wait for clients, over all users."""
        return self._held.used


def subscription_bytes(topic_filter: str) -> int:
    """About what a filter costs."""
    levels = topic_filter.count("/") + 1 if "+" in topic_filter or "#" in topic_filter else 0
    return _SUBSCRIPTION_BYTES + len(topic_filter) + levels * _LEVEL_BYTES


def will_bytes(will: Will | None) -> int:
    """About what a will costs."""
    if will is None:
        return 0
    size = _WILL_BYTES + len(will.topic) + len(will.payload)
    for value in (will.properties or {}).values():
        if isinstance(value, list):
            size += sum(len(part) for pair in value if isinstance(pair, tuple) for part in pair)
        elif not isinstance(value, int):
            size += len(value)
    return size
