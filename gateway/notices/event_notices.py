"""Notices of events: who is told what of a record of topic `event`; sans-IO.

The user whose device it is, and friends who have asked for it. What friends are told, and whether a
meeting may be told at all, is decided by the friend filter and by the rights of the moment.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from gateway.friends.friend_filter import FriendFilter, told_at
from gateway.notices.owntracks_downlink import own_transition
from gateway.users.notice_choices import FENCE_KINDS, KINDS
from gateway.users.rights import Rights
from waylog.messages import STREAMS, Event

#: Age in ms after which an event is told as a late one, and after which it is not told any more.
LATE_MS: Final = 2 * 60 * 1000
FRESH_MS: Final = 30 * 60 * 1000
#: Events of the last half of an hour that are remembered, so that none is told twice.
_KNOWN_MAX: Final = 500_000

_MEMBERS: Final = {
    "geofence": ("fence", "fence_id", "since", "lat", "lon"),
    "silence": ("since", "limit", "seconds"),
    "speeding": ("limit", "since", "fastest", "lat", "lon"),
    "meeting": ("with", "since", "until", "convoy"),
}


class Notice(NamedTuple):
    """What one user is told of an event."""

    user: str
    event: Event
    kind: str
    #: The device is one of the user's own.
    is_own: bool
    message: dict[str, Any]

    @property
    def replaces(self) -> str:
        """Return what is the same for notices of which the newest one is enough."""
        fence = self.message.get("fence", self.message.get("with", ""))
        return f"{self.event.device}\0{self.event.type}\0{fence}"

    def transition(self, tid: str) -> dict[str, Any] | None:
        """Return it for OwnTracks' apps, which know the ways into regions and out of them."""
        place = self.message
        if self.kind not in ("enter", "leave") or not {"lat", "lon"} <= place.keys():
            return None
        return own_transition(
            self.kind, str(place["fence"]), tid, self.event.time, place["lat"], place["lon"]
        )


def kind_of(event: Event) -> str | None:
    """Return the kind of notice that an event makes; None: none."""
    if event.source != STREAMS:
        # Whatever a device itself says to have happened.
        return None
    kind = (event.attributes or {}).get("transition") if event.type == "geofence" else event.type
    known = FENCE_KINDS if event.type == "geofence" else KINDS[len(FENCE_KINDS) :]
    return kind if isinstance(kind, str) and kind in known else None


class EventNotices:
    """Decides who is told of events, each once."""

    def __init__(
        self,
        friend_filter: FriendFilter,
        rights_of: Callable[[str], Rights],
        clock_ms: Callable[[], int],
    ) -> None:
        self._filter = friend_filter
        self._rights_of = rights_of
        self._clock_ms = clock_ms
        # The time at which each event was first seen, in this order.
        self._known: OrderedDict[str, int] = OrderedDict()
        #: Events that were too old to be told, and that came again.
        self.outdated = 0
        self.repeated = 0

    def is_news(self, event: Event) -> bool:
        """Tell whether an event makes a notice, and remember that it was seen."""
        now = self._clock_ms()
        while self._known and (
            len(self._known) > _KNOWN_MAX or next(iter(self._known.values())) < now - FRESH_MS
        ):
            self._known.popitem(last=False)
        if event.time < now - FRESH_MS:
            self.outdated += 1
            return False
        if event.id in self._known:
            self.repeated += 1
            return False
        self._known[event.id] = now
        return True

    def notices(self, event: Event, choices: Mapping[str, Collection[str]]) -> list[Notice]:
        """Return what is told of an event; `choices` for its device are the users' own.

        Who has chosen nothing is told everything of the own devices, and nothing of others'.
        Raises sqlite3.Error.
        """
        kind = kind_of(event)
        if kind is None:
            return []
        owner = event.device.partition("/")[0]
        found = []
        if kind in choices.get(owner, KINDS) and self._may_hear(owner, event):
            found.append(self._notice(owner, event, kind, is_own=True))
        others = [user for user, kinds in choices.items() if user != owner and kind in kinds]
        for user in others:
            rights = self._rights_of(user)
            told = self._filter.event(event, rights.terms_for(owner))
            if told is not None and _is_since(rights, owner, told_at(event)):
                found.append(self._notice(user, told, kind, is_own=False))
        return found

    def _may_hear(self, owner: str, event: Event) -> bool:
        """Tell whether a user may be told of an event of the own device."""
        if event.type != "meeting":
            return True
        other = self._filter.company(event)
        since = (event.attributes or {}).get("since")
        if other is None or not isinstance(since, int):
            return False
        friend = other.partition("/")[0]
        own, others = self._rights_of(owner), self._rights_of(friend)
        # A meeting tells each where the other one is, to some metres.
        is_exact = own.terms_for(friend).is_exact and others.terms_for(owner).is_exact
        return is_exact and _is_since(own, friend, since) and _is_since(others, owner, since)

    def _notice(self, user: str, event: Event, kind: str, *, is_own: bool) -> Notice:
        members = event.attributes or {}
        message: dict[str, Any] = {
            "type": event.type,
            "transition": members.get("transition"),
            "device": event.device,
            "time": event.time,
        }
        message |= {name: members[name] for name in _MEMBERS[event.type] if name in members}
        late_ms = self._clock_ms() - event.time
        if late_ms > LATE_MS:
            message["late_s"] = late_ms // 1000
        return Notice(user, event, kind, is_own, message)


def _is_since(rights: Rights, owner: str, time: int) -> bool:
    """Tell whether a user may see another one's devices, and might at a time."""
    return rights.sees(owner) and rights.friends[owner] <= time
