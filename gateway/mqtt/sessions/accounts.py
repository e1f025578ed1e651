"""Users' shares of common resources, so that no user can exhaust them.

A user beyond its share is refused something new (0x97, quota exceeded) or loses its own oldest;
other users are not affected. The shares are those of one process: with several workers each has its
part of every pool (gateway.mqtt.listening.options).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from gateway.mqtt.packets.packets import Will
from gateway.mqtt.sessions.memory_pool import Account, Pool
from gateway.mqtt.sessions.session import Session
from gateway.mqtt.sessions.user_turns import UserTurn
from gateway.mqtt.settings import Settings
from waylog.network.shares import Shares

# Estimated bytes: of a subscription, of a trie level of a filter with a wildcard, and of a will.
_SUBSCRIPTION_BYTES: Final = 300
_LEVEL_BYTES: Final = 300
_WILL_BYTES: Final = 500


class UserAccount:
    """The resources that one user holds, as long as it has a session here."""

    __slots__ = ("account", "offline", "publishes", "sessions", "turn")

    def __init__(self, held: Pool, publishes: Pool) -> None:
        self.account = Account(held)
        self.publishes = Account(publishes)
        self.turn = UserTurn()
        #: Sessions of clients that are away; the one away longest comes first.
        self.offline: OrderedDict[Session, None] = OrderedDict()
        self.sessions = 0


class UserAccounts:
    """The shares of all users in one process."""

    def __init__(self, settings: Settings) -> None:
        # One user gets at most half of a pool: doubled, one may have all of what is configured.
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
        #: By user, or by `MqttServer.party_of_unknown` before the client is authenticated.
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
        """Return the account of a user that has a session."""
        return self._users[user]

    def turn_of(self, session: Session) -> UserTurn | None:
        """Return the turn of a session's user; None after the user's last session has ended."""
        account = self._users.get(session.identity.user)
        return None if account is None else account.turn

    def begin(self, session: Session) -> None:
        """Count a new session for its user."""
        user = session.identity.user
        share = self._users.get(user)
        if share is None:
            share = self._users[user] = UserAccount(self._held, self._publishes)
        share.sessions += 1
        session.account = share.account

    def end(self, session: Session) -> None:
        """Discount a session that is over, with all that it held."""
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
        """Return whether a user may hold `size` more bytes of messages and wills."""
        user_account = self._users.get(user)
        account = Account(self._held) if user_account is None else user_account.account
        if not account.take(size):
            return False
        account.give_back(size)
        return True

    @property
    def users(self) -> int:
        """The number of users that have a session."""
        return len(self._users)

    @property
    def held_bytes(self) -> int:
        """The bytes of messages queued for or in flight to clients, and of wills, of all users."""
        return self._held.used


class ChargedBytes:
    """Bytes of one connection, in the share of its user or address."""

    __slots__ = ("_party", "_shares", "_size")

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._party = ""
        self._size = 0

    def replace(self, size: int, party: str) -> bool:
        """Charge so many bytes instead; return False, and charge none, if that is too much."""
        self.clear()
        if not self._shares.take(party, size):
            return False
        self._party, self._size = party, size
        return True

    def clear(self) -> None:
        """Charge nothing any more."""
        self._shares.give_back(self._party, self._size)
        self._size = 0


def subscription_bytes(topic_filter: str) -> int:
    """Return the estimated memory of a subscription in bytes."""
    levels = topic_filter.count("/") + 1 if "+" in topic_filter or "#" in topic_filter else 0
    return _SUBSCRIPTION_BYTES + len(topic_filter) + levels * _LEVEL_BYTES


def will_bytes(will: Will | None) -> int:
    """Return the estimated memory of a will in bytes; 0 for None."""
    if will is None:
        return 0
    size = _WILL_BYTES + len(will.topic) + len(will.payload)
    for value in (will.properties or {}).values():
        if isinstance(value, list):
            size += sum(len(part) for pair in value if isinstance(pair, tuple) for part in pair)
        elif not isinstance(value, int):
            size += len(value)
    return size
