"""Current rights, looked up by version: what an identity may see and send now.

What an identity may do can change while its connection lasts. So a connection remembers the version
at which it read the rights, and reads them again when `Permissions.version` has changed: a message
costs only the comparison of two integers. Code that has to act on a change (end a connection, start
to show a new friend) subscribes.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Set
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from gateway.shares.share import Terms
from gateway.users.auth import Identity
from gateway.users.rights import USUAL_RIGHTS, Rights

if TYPE_CHECKING:
    from gateway.users.database import UserStore

logger = logging.getLogger(__name__)

#: Seconds between checks for changes; a change reaches every connection within two seconds.
RECHECK_S: Final = 0.5
_KEPT_MAX: Final = 20_000

#: Called with the users whose rights have changed, after `Permissions.version` has grown.
Subscriber = Callable[[Set[str]], object]


class Visibility(Enum):
    """The extent to which an identity may see a device's data."""

    NOTHING = "nothing"
    #: Filtered by gateway.friends.friend_filter, from the beginning of the friendship on.
    TOLD = "told"
    EVERYTHING = "everything"


def visibility_of(identity: Identity, device: str) -> Visibility:
    """Return what an identity may see of a device (`user/device`) now.

    A token of one device gives access to that device, and to current positions of friends (see
    `may_look_back`); the link of a live share to the share's devices. The answer may change from
    TOLD to NOTHING by itself, so what is unfiltered is for EVERYTHING, never for "not TOLD".
    """
    share = identity.share
    if share is not None:
        return Visibility.TOLD if share.is_live and device in share.devices else Visibility.NOTHING
    owner, _, name = device.partition("/")
    if identity.device is None:
        if identity.admin or owner == identity.user:
            return Visibility.EVERYTHING
    elif owner == identity.user:
        return Visibility.EVERYTHING if name == identity.device else Visibility.NOTHING
    return Visibility.TOLD if identity.rights.sees(owner) else Visibility.NOTHING


def may_see(identity: Identity, device: str) -> bool:
    """Tell whether an identity may see anything of a device now."""
    return visibility_of(identity, device) is not Visibility.NOTHING


def may_look_back(identity: Identity, device: str) -> bool:
    """Tell whether an identity may see a device's past: tracks, visits, trips, missed events.

    A token of one device shows where friends are, not where they were. A share of a period shows
    where its devices were in that period.
    """
    share = identity.share
    if share is not None:
        return not share.is_live and device in share.devices
    sight = visibility_of(identity, device)
    return sight is Visibility.EVERYTHING or (sight is Visibility.TOLD and identity.device is None)


def friends_since(identity: Identity, owner: str) -> int | None:
    """Return from when on (ms) a device's owner tells somebody anything; None for not at all."""
    share = identity.share
    if share is not None:
        begin = share.created if share.from_ms is None else share.from_ms
        return begin if owner == share.user else None
    return identity.rights.friends.get(owner)


def newest_since(identity: Identity, owner: str) -> int:
    """Return the same for the newest position: a live share shows it even if it is older."""
    return 0 if identity.share is not None else friends_since(identity, owner) or 0


def terms_of(identity: Identity, owner: str) -> Terms:
    """Return how positions of an owner's devices that are TOLD are told."""
    share = identity.share
    return identity.rights.terms_for(owner) if share is None else share.terms


def watched_users(identity: Identity) -> frozenset[str] | None:
    """Return the users whose devices an identity may see; None for all."""
    if identity.share is not None:
        return frozenset((identity.share.user,))
    if identity.admin and identity.device is None:
        return None
    return frozenset((identity.user, *identity.rights.friends))


def may_send(identity: Identity) -> bool:
    """Tell whether an identity may send anything now."""
    return identity.rights.may_send


class Permissions:
    """Current rights from the user database; one per process, used on one event loop."""

    def __init__(self, store: UserStore, *, open_mode: bool = False) -> None:
        self._store = store
        self._open_mode = open_mode
        #: Grows whenever any user's rights have changed.
        self.version = store.rights_version()
        self._changed_at: dict[str, int] = {}
        self._rights: OrderedDict[str, Rights] = OrderedDict()
        self._subscribers: list[Subscriber] = []

    # --- asking ---------------------------------------------------------------------------------

    def rights_of(self, user: str) -> Rights:
        """Return the current rights of a user. Raises sqlite3.Error."""
        if self._open_mode:
            return USUAL_RIGHTS
        rights = self._rights.get(user)
        if rights is None:
            rights = self._rights[user] = self._store.rights.of(user)
            if len(self._rights) > _KEPT_MAX:
                self._rights.popitem(last=False)
        return rights

    def changed_since(self, user: str, version: int) -> bool:
        """Tell whether the rights of a user have changed after `version`."""
        return self._changed_at.get(user, 0) > version

    def now(self, identity: Identity) -> Identity | None:
        """Return an identity with its current rights; None if user or credential has been revoked.

        Raises sqlite3.Error.
        """
        if self._open_mode:
            return identity
        if identity.share is not None:
            valid = self._store.shares.find(identity.share.hash) == identity.share
            return identity if valid else None
        standing = self._store.standing(identity.user, identity.credential)
        if standing is None:
            return None
        admin = identity.admin and standing.admin
        rights = self.rights_of(identity.user)
        if admin == identity.admin and rights == identity.rights:
            return identity
        return replace(identity, admin=admin, rights=rights)

    def since(self, identity: Identity, version: int) -> Identity | None:
        """Return the same for an identity that was current at `version`; cheap without a change."""
        if version == self.version or not self.changed_since(identity.account, version):
            return identity
        return self.now(identity)

    # --- changes --------------------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` after each change, with the users whose rights have changed."""
        self._subscribers.append(subscriber)

    def look(self) -> None:
        """Read changes and notify the subscribers. Raises sqlite3.Error."""
        self._store.rights.end_friendships()
        changed = self._store.rights_changed_after(self.version)
        if not changed:
            return
        self._changed_at.update(changed)
        for user in changed:
            self._rights.pop(user, None)
        self.version = max(changed.values())
        for subscriber in self._subscribers:
            try:
                subscriber(changed.keys())
            except Exception:
                logger.exception("changed rights could not be applied")

    async def watch(self, recheck_s: float = RECHECK_S) -> None:
        """Check for changes until cancelled."""
        while True:
            await asyncio.sleep(recheck_s)
            try:
                self.look()
            except sqlite3.Error as error:
                logger.error("the user database cannot be read: %s", error)
            except Exception:
                # Any error must not keep a revoked user connected.
                logger.exception("changes of rights could not be looked up")
