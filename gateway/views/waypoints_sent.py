"""The favourite places last sent to each device in HTTP mode."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from gateway.limits.user_weights import UserWeights

DEVICES_MAX: Final = 50_000


class WaypointsSent:
    """Versions by device. Beyond the limit, the user with the most forgets the oldest one."""

    def __init__(self, devices_max: int = DEVICES_MAX) -> None:
        self._devices_max = devices_max
        self._users: OrderedDict[str, OrderedDict[str, int]] = OrderedDict()
        self._shares = UserWeights()

    def __len__(self) -> int:
        return self._shares.weight

    def is_last(self, device: str, version: int) -> bool:
        """Tell whether this version was the last one sent to a device; record it as sent."""
        user = device.partition("/")[0]
        own = self._users.get(user)
        if own is None:
            own = self._users[user] = OrderedDict()
        else:
            self._users.move_to_end(user)
        known = own.get(device)
        own[device] = version
        own.move_to_end(device)
        if known is None:
            self._shares.change(user, 1)
            if len(self) > self._devices_max:
                self._forget_one()
        return known == version

    def _forget_one(self) -> None:
        user = self._shares.heaviest() or next(iter(self._users))
        own = self._users[user]
        own.popitem(last=False)
        self._shares.change(user, -1)
        if not own:
            del self._users[user]
