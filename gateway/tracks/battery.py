"""The course of a device's battery, thinned to what a chart shows; sans-IO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Parts of a period; of each the lowest and the highest level are kept.
_PARTS: Final = 300


class BatteryLevel(msgspec.Struct, frozen=True):
    """The level of a battery at a time."""

    time: int  # ms since 1970
    battery: float  # percent


class BatteryCourse(msgspec.Struct, frozen=True):
    """The levels of a period, by time."""

    levels: list[BatteryLevel]


def thinned(
    times: NDArray[np.int64], levels: NDArray[np.float64], from_ms: int, to_ms: int
) -> list[BatteryLevel]:
    """Return at most 600 levels of a period, by time, with its first, last, lowest and highest.

    `times` ascend. O(n).
    """
    # Only the reading process thins, and the gateway itself does without numpy's memory.
    import numpy as np

    if not len(times):
        return []
    parts = (times - from_ms) * _PARTS // max(to_ms - from_ms + 1, 1)
    kept = {0, len(times) - 1}
    starts = np.flatnonzero(np.diff(parts, prepend=parts[0] - 1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(times)], strict=True):
        part = levels[start:stop]
        kept |= {start + int(part.argmin()), start + int(part.argmax())}
    return [BatteryLevel(int(times[each]), round(float(levels[each]), 1)) for each in sorted(kept)]
