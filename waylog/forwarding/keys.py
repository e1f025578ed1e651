"""The keys that seal forwardings, which are never in the log in the clear.

Where all values are sealed (WAYLOG_MASTER_KEY) they are those. Elsewhere WAYLOG_FORWARDING_KEY
names a file with a master key for forwardings alone; it should be the same that would seal all
values, so that these can be sealed later. An erasure of the user destroys the key with the others.
"""

from __future__ import annotations

import atexit
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waylog.sealing.sealing import ENVIRONMENT, owner_of_record, shared_key_ring

if TYPE_CHECKING:
    from waylog.sealing.value_keys import KeyRing

#: Names the file of the master key for forwardings, where values are not sealed.
FORWARDING_KEY: Final = "WAYLOG_FORWARDING_KEY"


#: What is said where forwardings cannot be opened.
NO_KEY: Final = (
    f"forwardings are sealed: {ENVIRONMENT} or {FORWARDING_KEY} has to name the file with the key "
    "(DATA/master.key of `waylog up`)"
)


@lru_cache(maxsize=4)
def forwarding_keys(bootstrap_servers: str) -> KeyRing | None:
    """Return the keys of a log's forwardings; None if no file of a master key is named.

    Raises ConfigError, LogUnreachable.
    """
    ring = shared_key_ring(bootstrap_servers)
    path = os.environ.get(FORWARDING_KEY)
    if ring is not None or not path:
        return ring
    from waylog.sealing.value_encryption import load_master_key
    from waylog.sealing.value_keys import KeyRing

    ring = KeyRing(bootstrap_servers, load_master_key(Path(path)))
    atexit.register(ring.close)
    return ring


def sealed_with_known_key(ring: KeyRing, topic: str, key: bytes, value: bytes) -> bytes | None:
    """Return a value sealed without waiting; None if its owner has no key, or no longer."""
    from waylog.sealing.value_encryption import seal

    own = ring.newest_of(owner_of_record(topic, key))
    return None if own is None else seal(value, own, key)
