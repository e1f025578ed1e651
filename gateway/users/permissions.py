"""Rights, looked up by version: what somebody may see and send now.

An identity says who somebody is. What it may do changes while its connection lasts, so a connection
keeps the version at which it has asked and asks again as soon as `Permissions.version` is another:
comparing two integers is all that a message costs. Whoever has something to do when rights change
(end a connection, begin to show a new friend) subscribes.
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

from gateway.users.auth import Identity
from gateway.users.rights import USUAL_RIGHTS, Rights

if TYPE_CHECKING:
    from gateway.users.database import UserStore

logger = logging.getLogger(__name__)

#: A change reaches every connection within two seconds; this is how often one is looked for.
RECHECK_S: Final = 0.5
_KEPT_MAX: Final = 20_000

#: Told whose rights are others now, after `Permissions.version` has grown.
Subscriber = Callable[[Set[str]], object]


class Sight(Enum):
    """The part of a device that somebody is shown."""

    NOTHING = "nothing"
    #: As gateway.friends.friend_filter tells it, from the beginning of the friendship on.
    TOLD = "told"
    EVERYTHING = "everything"


def sight_of(identity: Identity, device: str) -> Sight:
    """The sight that somebody has of a device (`user/device`) now.

    A token of one device shows that device alone, and where friends are now (see `may_look_back`).
    """
    owner, _, name = device.partition("/")
    if identity.device is None:
        if identity.admin or owner == identity.user:
            return Sight.EVERYTHING
    elif owner == identity.user:
        return Sight.EVERYTHING if name == identity.device else Sight.NOTHING
    return Sight.TOLD if owner in identity.rights.friends else Sight.NOTHING


def may_see(identity: Identity, device: str) -> bool:
    """Tell whether somebody may see anything of a device now."""
    return sight_of(identity, device) is not Sight.NOTHING


def may_look_back(identity: Identity, device: str) -> bool:
    """Tell whether somebody may see where a device was: tracks, visits, trips, missed events.

    What a token of one device shows of friends is where they are, not where they were.
    """
    sight = sight_of(identity, device)
    return sight is Sight.EVERYTHING or (sight is Sight.TOLD and identity.device is None)


def friends_since(identity: Identity, owner: str) -> int | None:
    """Since when (ms) a user's devices are shown to somebody as a friend; None: they are not."""
    return identity.rights.friends.get(owner)


def may_send(identity: Identity) -> bool:
    """Tell whether somebody may send anything now."""
    return identity.rights.may_send


class Permissions:
    """Rights as the users database has them now; used on one event loop, one for each process."""

    def __init__(self, store: UserStore, *, open_mode: bool = False) -> None:
        self._store = store
        self._open_mode = open_mode
        #: Grows whenever the rights of anybody have changed.
        self.version = store.rights_version()
        self._changed_at: dict[str, int] = {}
        self._rights: OrderedDict[str, Rights] = OrderedDict()
        self._subscribers: list[Subscriber] = []

    # --- asking ---------------------------------------------------------------------------------

    def rights_of(self, user: str) -> Rights:
        """The rights of a user now. Raises sqlite3.Error."""
        if self._open_mode:
            return USUAL_RIGHTS
        rights = self._rights.get(user)
        if rights is None:
            rights = self._rights[user] = self._store.rights.of(user)
            if len(self._rights) > _KEPT_MAX:
                self._rights.popitem(last=False)
        return rights

    def changed_since(self, user: str, version: int) -> bool:
        """Tell whether the rights of a user have changed after a version of `version`."""
        return self._changed_at.get(user, 0) > version

    def now(self, identity: Identity) -> Identity | None:
        """Somebody with the rights of now; None when user or credential has been revoked.

        Raises sqlite3.Error.
        """
        if self._open_mode:
            return identity
        standing = self._store.standing(identity.user, identity.credential)
        if standing is None:
            return None
        admin = identity.admin and standing.admin
        rights = self.rights_of(identity.user)
        if admin == identity.admin and rights == identity.rights:
            return identity
        return replace(identity, admin=admin, rights=rights)

    def since(self, identity: Identity, version: int) -> Identity | None:
        """The same for an identity that was right at `version`: costs little without a change."""
        if version == self.version or not self.changed_since(identity.user, version):
            return identity
        return self.now(identity)

    # --- changes --------------------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` after each change with the users whose rights are others now."""
        self._subscribers.append(subscriber)

    def look(self) -> None:
        """Take note of changes, and tell of them. Raises sqlite3.Error."""
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
        """Look until cancelled."""
        while True:
            await asyncio.sleep(recheck_s)
            try:
                self.look()
            except sqlite3.Error as error:
                logger.error("the user database cannot be read: %s", error)
            except Exception:
                # Whoever has been revoked must not stay because of somebody else.
                logger.exception("changes of rights could not be looked up")
