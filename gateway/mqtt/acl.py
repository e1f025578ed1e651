"""Who may publish and read what.

A user owns `owntracks/<user>/...` and `devices/<user>/...`; a token of one device owns the part of
both that is the device's; an admin may do everything. What a subscription could show beyond that is
cut off when it is made: `owntracks/+/+`, which the OwnTracks apps ask for, becomes
`owntracks/<user>/+`. So no delivery needs a check, and a hundred thousand such filters do not meet
each other's messages.
"""

from __future__ import annotations

from typing import Final

from gateway.mqtt.application import Identity

ROOTS: Final = ("owntracks", "devices")


def _owned(identity: Identity) -> tuple[str, ...] | None:
    """User and perhaps device, as topic levels; None if they can't be such."""
    user, device = identity.user, identity.device
    if device is not None and device.startswith(f"{user}/"):
        device = device.removeprefix(f"{user}/")
    levels = (user,) if device is None else (user, device)
    # A user called "+" must not become a wildcard.
    if any(not level or set(level) & set("/+#\0") for level in levels):
        return None
    return levels


class AccessRules:
    """The rules above. Another set of rules may take their place, as the tests of protocols do."""

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Whether a PUBLISH to `topic` is accepted."""
        levels = topic.split("/")
        if levels[0] == "devices" and levels[-1] == "address":
            return False  # what the platform says, nobody else does
        if identity.admin:
            return not topic.startswith("$")
        owned = _owned(identity)
        return (
            owned is not None
            and levels[0] in ROOTS
            and len(levels) > len(owned)
            and tuple(levels[1 : 1 + len(owned)]) == owned
        )

    def granted_filters(self, identity: Identity, topic_filter: str) -> tuple[str, ...]:
        """What is left of a valid filter; empty if it could never match anything allowed."""
        if identity.admin:
            return (topic_filter,)
        owned = _owned(identity)
        if owned is None:
            return ()
        narrowed = (narrow(topic_filter, (root, *owned)) for root in ROOTS)
        return tuple(granted for granted in narrowed if granted is not None)


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
