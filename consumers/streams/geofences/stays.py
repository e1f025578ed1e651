"""Stays of a device in geofences, out of its fixes in the order of their times; sans-IO.

A fix decides that the device is inside of a fence or outside if that holds for its whole circle of
accuracy; one that decides nothing changes nothing. So a device that stands at the boundary does not
enter and leave again and again. A stay begins with the first fix inside and ends with the first one
outside. `enter` is told once the stay has lasted for the fence's minimum, `dwell` once it has
lasted for its dwell, `leave` at its end if `enter` was told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from consumers.streams.geofences.fence_index import Fence
from waylog.geofences.shape import INSIDE, OUTSIDE

ENTER: Final = "enter"
DWELL: Final = "dwell"
LEAVE: Final = "leave"
#: Fences in which a device is at once; those beyond are left out. A state has to fit into a record.
STAYS_MAX: Final = 1000


class Stay(msgspec.Struct, array_like=True, gc=False):
    """A device is inside of a fence."""

    since: int  # time of the first fix inside, ms
    entered: bool = False  # `enter` was told
    dwelt: bool = False  # `dwell` was told


class Transition(NamedTuple):
    """What is told of a device and a fence."""

    kind: str
    fence: Fence
    since: int  # time of the first fix inside, ms


def take_fix(
    stays: dict[str, Stay],
    time: int,
    candidates: Iterable[Fence],
    fence_of: Callable[[str], Fence | None],
    side_of: Callable[[Fence], int],
) -> list[Transition]:
    """Change the stays of a device by a fix; return what is to be told, in order.

    `candidates` has all fences that the fix may be inside of. `fence_of` returns the fence of a
    key if it still applies: a stay in another one is forgotten, and nothing is told. `side_of` says
    on which side of a fence the fix is.
    """
    left: list[Transition] = []
    inside: list[tuple[Fence, Stay]] = []
    for key, stay in list(stays.items()):
        fence = fence_of(key)
        side = OUTSIDE if fence is None else side_of(fence)
        if side == OUTSIDE:
            del stays[key]
            if fence is not None and stay.entered:
                left.append(Transition(LEAVE, fence, stay.since))
        elif side == INSIDE and fence is not None:
            inside.append((fence, stay))
    for fence in candidates:
        if fence.key not in stays and len(stays) < STAYS_MAX and side_of(fence) == INSIDE:
            stays[fence.key] = stay = Stay(time)
            inside.append((fence, stay))
    told: list[Transition] = []
    for fence, stay in inside:
        lasted = time - stay.since
        if not stay.entered and lasted >= fence.minimum_ms:
            stay.entered = True
            told.append(Transition(ENTER, fence, stay.since))
        if stay.entered and not stay.dwelt and fence.dwell_ms and lasted >= fence.dwell_ms:
            stay.dwelt = True
            told.append(Transition(DWELL, fence, stay.since))
    # Not in the order in which the definitions came, which is another one after a restart.
    left.sort(key=lambda each: each.fence.key)
    told.sort(key=lambda each: each.fence.key)
    return left + told
