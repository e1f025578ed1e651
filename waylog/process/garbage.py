"""How often a process that serves looks for garbage: CPython's own pace suits short programs."""

from __future__ import annotations

import gc

#: Objects made, less those freed, until the youngest are looked through.
_YOUNGEST = 100_000


def look_for_garbage_less_often() -> None:
    """To be called once what stays for the life of the process has been built.

    What has been built until then is never looked at again. Records on their way through a process
    are thousands of objects at any time, and hardly anything is ever a cycle: at CPython's own pace
    to look for cycles takes 6 to 10 % of all time, and each look at everything is a pause.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNGEST, 20, 50)
