"""Access rules: the topics that clients may publish to and read.

A user owns `owntracks/<user>/...` and `devices/<user>/...`; a token of one device owns the device's
part of both; an admin may do everything. A subscription is narrowed to what its client may read
when it is made, and again when rights change: `owntracks/+/+`, which the OwnTracks apps ask for,
becomes `owntracks/<user>/+`. So a user's own messages are delivered without a check, and a hundred
thousand such filters do not match each other's messages.

A user's friends (`waylog user friend`) may read the positions and names of its devices, in the form
that `delivery_rights` lets friends see. The token of a phone allows that, too, since OwnTracks
shows friends. An administrator may grant any user any other topics (`waylog user allow`).
"""

from __future__ import annotations

from typing import Final

from gateway.mqtt.interfaces import Identity
from gateway.mqtt.packets.topics import matches
from gateway.users.permissions import Visibility
from gateway.users.rights import USUAL_RIGHTS, Rights

ROOTS: Final = ("owntracks", "devices")
#: Topics that friends may read of each other: no commands, no configurations, no waypoints.
_OF_FRIENDS: Final = (
    "owntracks/{}/+",
    "owntracks/{}/+/event",
    "owntracks/{}/+/info",
    "devices/{}/+/address",
    "devices/{}/+/position",
)
#: What only the platform publishes about devices: programs act on it.
_OF_THE_PLATFORM: Final = ("address", "notice")
#: Placeholder for a friend's name; it cannot occur in a name or a filter.
_ANYBODY: Final = "\0"
#: Friends whose topics one subscription can reach.
_FRIENDS_MAX: Final = 50


def _owned(identity: Identity) -> tuple[str, ...] | None:
    """Return user and perhaps device as topic levels; None if they are not valid levels."""
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
    """The rules of the module's docstring. Tests of protocols replace them by other rules."""

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Return whether a PUBLISH to `topic` is accepted."""
        levels = topic.split("/")
        if levels[0] == "devices" and levels[-1] in _OF_THE_PLATFORM:
            return False
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
        """Return the filters to which a valid filter is narrowed; empty if none may be read."""
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
        """Return whether granted filters may match friends' topics.

        If so, `visibility_of` has to be called for each message.
        """
        if identity.admin:
            return False
        friends = rights_of(identity).friends
        return any(not friends.keys().isdisjoint(each.split("/")[1:2]) for each in granted_filters)

    def visibility_of(self, identity: Identity, topic: str) -> Visibility:
        """Return how much a subscriber may see of messages to a topic."""
        if identity.admin:
            return Visibility.EVERYTHING
        levels = topic.split("/")
        owned = _owned(identity)
        if owned is not None and levels[0] in ROOTS and tuple(levels[1 : 1 + len(owned)]) == owned:
            return Visibility.EVERYTHING
        rights = rights_of(identity)
        if any(matches(each, topic) for each in rights.subscribe):
            return Visibility.EVERYTHING
        owner = levels[1] if len(levels) > 1 else ""
        if rights.sees(owner) and any(
            matches(pattern.format(owner), topic) for pattern in _OF_FRIENDS
        ):
            return Visibility.TOLD
        return Visibility.NOTHING


def _of_friends(topic_filter: str, friends: list[str]) -> list[str]:
    """Narrow a filter to the topics that friends may read."""
    levels = topic_filter.split("/")
    if len(levels) > 1 and levels[1] not in ("+", "#") and levels[0] != "#":
        named = levels[1]
        if named not in friends:
            return []
        found = [intersect(topic_filter, each.format(named)) for each in _OF_FRIENDS]
        return [each for each in found if each is not None]
    # The result is the same for each friend, so it is computed once.
    of_anybody = [intersect(topic_filter, each.format(_ANYBODY)) for each in _OF_FRIENDS]
    common = [each for each in of_anybody if each is not None]
    return [each.replace(_ANYBODY, friend) for friend in friends for each in common]


def rights_of(identity: Identity) -> Rights:
    """Return the rights of a user beyond its own topics."""
    rights: Rights = getattr(identity, "rights", USUAL_RIGHTS)
    return rights


def intersect(one: str, other: str) -> str | None:
    """Return the filter that matches what both filters match; None if there is nothing."""
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
    """Return the filter that matches what `topic_filter` and `prefix/#` both match, or None."""
    levels = topic_filter.split("/")
    for index, wanted in enumerate(prefix):
        if index >= len(levels):
            return None
        if levels[index] == "#":
            return "/".join((*prefix, "#"))
        if levels[index] not in {"+", wanted}:
            return None
    return "/".join((*prefix, *levels[len(prefix) :]))
