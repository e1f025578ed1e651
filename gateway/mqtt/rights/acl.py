"""Rules of what clients may publish and read.

A user owns `owntracks/<user>/...` and `devices/<user>/...`; a token of one device owns the part of
both that is the device's; an admin may do everything. What a subscription could show beyond that is
cut off when it is made, and again when rights change: `owntracks/+/+`, which the OwnTracks apps ask
for, becomes `owntracks/<user>/+`. So the delivery of what is one's own needs no check, and a
hundred thousand such filters do not meet each other's messages.

A user's friends (`waylog user friend`) may read where its devices are and what they are called, as
it is told to friends (`delivery_rights`), also with the token of a phone, since OwnTracks shows
friends. An administrator may grant anybody any other topics (`waylog user allow`).
"""

from __future__ import annotations

from typing import Final

from gateway.mqtt.interfaces import Identity
from gateway.mqtt.packets.topics import matches
from gateway.users.permissions import Sight
from gateway.users.rights import USUAL_RIGHTS, Rights

ROOTS: Final = ("owntracks", "devices")
#: What friends may read of each other: no commands, no configurations, no waypoints.
_OF_FRIENDS: Final = (
    "owntracks/{}/+",
    "owntracks/{}/+/event",
    "owntracks/{}/+/info",
    "devices/{}/+/address",
    "devices/{}/+/position",
)
#: Stands for a friend: no name and no filter has it.
_ANYBODY: Final = "\0"
#: Whose topics one subscription reaches.
_FRIENDS_MAX: Final = 50


def _owned(identity: Identity) -> tuple[str, ...] | None:
    """User and perhaps device, as topic levels; None if they can't be such."""
    user, device = identity.user, identity.device
    if device is not None and device.startswith(f"{user}/"):
        device = device.removeprefix(f"{user}/")
    levels = (user,) if device is None else (user, device)
    # A user called "+" must not become a wildcard.
    for level in levels:
        if not level or "/" in level or "+" in level or "#" in level or "\0" in level:
            return None
    return levels


class AccessRules:
    """The rules above. Another set of rules may take their place, as the tests of protocols do."""

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Tell whether a PUBLISH to `topic` is accepted."""
        levels = topic.split("/")
        if levels[0] == "devices" and levels[-1] == "address":
            return False  # what the platform says, nobody else does
        if not rights_of(identity).may_send:
            return False
        if identity.admin:
            return not topic.startswith("$")
        owned = _owned(identity)
        if (
            owned is not None
            and levels[0] in ROOTS
            and len(levels) > len(owned)
            and tuple(levels[1 : 1 + len(owned)]) == owned
        ):
            return True
        granted = rights_of(identity).publish
        return not topic.startswith("$") and any(matches(each, topic) for each in granted)

    def granted_filters(self, identity: Identity, topic_filter: str) -> tuple[str, ...]:
        """The rest of a valid filter that is allowed; empty if it could never match anything."""
        if identity.admin:
            return (topic_filter,)
        owned = _owned(identity)
        if owned is None:
            return ()
        narrowed = [narrow(topic_filter, (root, *owned)) for root in ROOTS]
        rights = rights_of(identity)
        narrowed += [intersect(topic_filter, each) for each in rights.subscribe]
        if rights.friends:
            narrowed += _of_friends(topic_filter, sorted(rights.friends)[:_FRIENDS_MAX])
        return tuple(dict.fromkeys(granted for granted in narrowed if granted is not None))

    def reaches_friends(self, identity: Identity, granted_filters: tuple[str, ...]) -> bool:
        """Tell whether granted filters may match topics that are told, so that `sight_of` is to be
        asked for each message.
        """
        if identity.admin:
            return False
        friends = rights_of(identity).friends
        return any(not friends.keys().isdisjoint(each.split("/")[1:2]) for each in granted_filters)

    def sight_of(self, identity: Identity, topic: str) -> Sight:
        """The sight that a subscriber has of messages to a topic."""
        if identity.admin:
            return Sight.EVERYTHING
        levels = topic.split("/")
        owned = _owned(identity)
        if owned is not None and levels[0] in ROOTS and tuple(levels[1 : 1 + len(owned)]) == owned:
            return Sight.EVERYTHING
        rights = rights_of(identity)
        if any(matches(each, topic) for each in rights.subscribe):
            return Sight.EVERYTHING
        owner = levels[1] if len(levels) > 1 else ""
        if owner in rights.friends and any(
            matches(pattern.format(owner), topic) for pattern in _OF_FRIENDS
        ):
            return Sight.TOLD
        return Sight.NOTHING


def _of_friends(topic_filter: str, friends: list[str]) -> list[str]:
    """The part of a filter that may be read of friends."""
    levels = topic_filter.split("/")
    if len(levels) > 1 and levels[1] not in ("+", "#") and levels[0] != "#":
        named = levels[1]
        if named not in friends:
            return []
        found = [intersect(topic_filter, each.format(named)) for each in _OF_FRIENDS]
        return [each for each in found if each is not None]
    # The same of each: it is found out once.
    of_anybody = [intersect(topic_filter, each.format(_ANYBODY)) for each in _OF_FRIENDS]
    common = [each for each in of_anybody if each is not None]
    return [each.replace(_ANYBODY, friend) for friend in friends for each in common]


def rights_of(identity: Identity) -> Rights:
    """The rights of somebody beyond their own topics."""
    rights: Rights = getattr(identity, "rights", USUAL_RIGHTS)
    return rights


def intersect(one: str, other: str) -> str | None:
    """The filter that matches what both match; None if nothing."""
    ours, theirs = one.split("/"), other.split("/")
    both: list[str] = []
    for index in range(max(len(ours), len(theirs))):
        our = ours[index] if index < len(ours) else None
        their = theirs[index] if index < len(theirs) else None
        # "a/#" matches "a" as well, so that a filter may end where the other has "#".
        if our == "#":
            return "/".join([*both, *theirs[index:]])
        if their == "#":
            return "/".join([*both, *ours[index:]])
        if our is None or their is None:
            return None
        if our == "+":
            both.append(their)
        elif their in ("+", our):
            both.append(our)
        else:
            return None
    return "/".join(both)


def narrow(topic_filter: str, prefix: tuple[str, ...]) -> str | None:
    """The filter that matches what `topic_filter` and `prefix/#` both match; None if nothing."""
    levels = topic_filter.split("/")
    for index, wanted in enumerate(prefix):
        if index >= len(levels):
            return None
        if levels[index] == "#":
            return "/".join((*prefix, "#"))
        if levels[index] not in {"+", wanted}:
            return None
    return "/".join((*prefix, *levels[len(prefix) :]))
