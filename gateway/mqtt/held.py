"""Messages of friends that cannot be told yet, and that nothing retained will stand for."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

from gateway.mqtt.session import Message, Session
from waylog.sealing import owner_of_mqtt_topic

#: Of one user: the newest ones.
USER_MESSAGES_MAX: Final = 20
USER_BYTES_MAX: Final = 16 * 1024
#: Of all users; beyond it the oldest go.
BYTES_MAX: Final = 4 * 1024 * 1024
_ENTRY_BYTES: Final = 500  # of a message's objects, apart from topic and payload


class HeldMessages:
    """Messages, the oldest first, and the sessions that each is for."""

    def __init__(self) -> None:
        self._messages: OrderedDict[Message, dict[Session, None]] = OrderedDict()
        self._of_users: dict[str, OrderedDict[Message, None]] = {}
        self._user_bytes: Counter[str] = Counter()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def hold(self, message: Message, session: Session) -> None:
        """Keep a message for a session."""
        sessions = self._messages.get(message)
        if sessions is None:
            user = _user(message)
            sessions = self._messages[message] = {}
            own = self._of_users.setdefault(user, OrderedDict())
            own[message] = None
            self._user_bytes[user] += _size(message)
            self._bytes += _size(message)
            while own and (len(own) > USER_MESSAGES_MAX or self._user_bytes[user] > USER_BYTES_MAX):
                self._remove(next(iter(own)))
            while self._bytes > BYTES_MAX:
                self._remove(next(iter(self._messages)))
        sessions[session] = None

    def take(self) -> list[tuple[Message, list[Session]]]:
        """Everything that is held; nothing is held afterwards."""
        held = [(message, list(sessions)) for message, sessions in self._messages.items()]
        self._messages.clear()
        self._of_users.clear()
        self._user_bytes.clear()
        self._bytes = 0
        return held

    def forget_device(self, device: str) -> None:
        """A device (`user/device`) has been erased."""
        for message in list(self._of_users.get(device.partition("/")[0], ())):
            if owner_of_mqtt_topic(message.topic) == device:
                self._remove(message)

    def _remove(self, message: Message) -> None:
        user = _user(message)
        del self._messages[message]
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
