"""Messages of friends that wait until homes are known, and have no retained message instead."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gateway.mqtt.packets.message import Message
from waylog.sealing.sealing import owner_of_mqtt_topic

if TYPE_CHECKING:
    from gateway.mqtt.sessions.session import Session

#: Limits of one user's messages; the newest are kept.
USER_MESSAGES_MAX: Final = 20
USER_BYTES_MAX: Final = 16 * 1024
#: Bytes of the messages of all users; beyond it the oldest are dropped.
BYTES_MAX: Final = 4 * 1024 * 1024
_ENTRY_BYTES: Final = 500  # estimated size of a message's objects, apart from topic and payload


class PendingFriendMessages:
    """Held messages, the oldest first, and the sessions that each is for."""

    def __init__(self) -> None:
        self._messages: OrderedDict[Message, dict[Session, None]] = OrderedDict()
        self._of_sessions: dict[Session, dict[Message, None]] = {}
        self._of_users: dict[str, OrderedDict[Message, None]] = {}
        self._user_bytes: Counter[str] = Counter()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def hold(self, message: Message, session: Session) -> None:
        """Hold a message for a session."""
        sessions = self._messages.get(message)
        if sessions is None:
            sessions = self._add(message)
        sessions[session] = None
        self._of_sessions.setdefault(session, {})[message] = None
        self._trim(_user(message))

    def of(self, session: Session) -> list[Message]:
        """Return all messages that are held for a session, in order."""
        return list(self._of_sessions.get(session, ()))

    def take(self) -> Iterator[tuple[Message, Session]]:
        """Yield all messages, the oldest first, each once for each of its sessions.

        Messages not yielded yet are still held, and may be dropped or handed over meanwhile.
        """
        while self._messages:
            message = next(iter(self._messages))
            for session in list(self._messages[message]):
                if message in self._of_sessions.get(session, ()):
                    self._let_go(message, session)
                    yield message, session
            if message in self._messages:
                self._remove(message)

    def forget_device(self, device: str) -> None:
        """Drop the messages of an erased device (`user/device`)."""
        for message in list(self._of_users.get(device.partition("/")[0], ())):
            if owner_of_mqtt_topic(message.topic) == device:
                self._remove(message)

    def _add(self, message: Message) -> dict[Session, None]:
        user = _user(message)
        self._of_users.setdefault(user, OrderedDict())[message] = None
        self._user_bytes[user] += _size(message)
        self._bytes += _size(message)
        sessions = self._messages[message] = {}
        return sessions

    def _trim(self, user: str) -> None:
        own = self._of_users[user]
        while own and (len(own) > USER_MESSAGES_MAX or self._user_bytes[user] > USER_BYTES_MAX):
            self._remove(next(iter(own)))
        while self._bytes > BYTES_MAX:
            self._remove(next(iter(self._messages)))

    def _let_go(self, message: Message, session: Session) -> None:
        own = self._of_sessions.get(session, {})
        own.pop(message, None)
        if not own:
            self._of_sessions.pop(session, None)

    def _remove(self, message: Message) -> None:
        user = _user(message)
        for session in self._messages.pop(message):
            self._let_go(message, session)
        own = self._of_users[user]
        del own[message]
        self._user_bytes[user] -= _size(message)
        self._bytes -= _size(message)
        if not own:
            del self._of_users[user], self._user_bytes[user]


def _user(message: Message) -> str:
    return message.topic.split("/", 2)[1]


def _size(message: Message) -> int:
    return len(message.topic) + len(message.payload) + _ENTRY_BYTES
