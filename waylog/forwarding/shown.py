"""A forwarding as its owner is shown it: without secrets, and with how it fares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from waylog.forwarding.definition import SECRETS, Forwarding, Progress
from waylog.forwarding.pauses import Pause

#: What is shown of a secret.
SET = "set"


def shown(
    forwarding_id: str,
    forwarding: Forwarding,
    progress: Mapping[int, Progress],
    pause: Pause | None = None,
) -> dict[str, Any]:
    """Return the members of a forwarding, which `pause` covers; times are ms since 1970."""
    failed = max(
        (each for each in progress.values() if each.error is not None),
        key=lambda each: each.error_time or 0,
        default=None,
    )
    times = [each.forwarded for each in progress.values() if each.forwarded is not None]
    refusals = [each.refusal for each in progress.values() if each.refusal is not None]
    return {
        "id": forwarding_id,
        "name": forwarding.name,
        "kind": forwarding.kind,
        "url": shown_url(forwarding.url),
        "devices": forwarding.devices,
        "device_names": forwarding.device_names,
        "username": forwarding.username,
        **{name: None if getattr(forwarding, name) is None else SET for name in SECRETS},
        "created": forwarding.created,
        "since": forwarding.since,
        "paused_by": forwarding.paused_by,
        "paused_by_administrator": (
            None if pause is None else {"reason": pause.reason, "time": pause.time}
        ),
        "state": _state(forwarding, progress, pause),
        "forwarded": max(times, default=None),
        "error": None if failed is None else failed.error,
        "error_time": None if failed is None else failed.error_time,
        "refused": sum(each.refused for each in progress.values()),
        "refusal": refusals[-1] if refusals else None,
        "missed": sum(each.missed for each in progress.values()),
        "partitions": [
            {"partition": partition, "offset": each.offset, "live": each.live}
            for partition, each in sorted(progress.items())
        ],
    }


#: What administrators are shown of other users' forwardings.
_ADMINISTRATORS: Final = (
    *("id", "name", "kind", "url", "created", "paused_by", "paused_by_administrator", "state"),
    *("forwarded", "refused", "missed"),
)


def shown_to_administrators(user: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that tell whose forwarding it is, where it leads and how it fares.

    `members` are those of `shown`.
    """
    return {"user": user} | {name: members[name] for name in _ADMINISTRATORS}


def _state(forwarding: Forwarding, progress: Mapping[int, Progress], pause: Pause | None) -> str:
    if pause is not None or forwarding.paused_by is not None:
        return "paused"
    if not progress:
        return "new"
    if any(each.error is not None for each in progress.values()):
        return "failing"
    return "live" if all(each.live for each in progress.values()) else "behind"


def shown_url(url: str) -> str:
    """Return a URL without what may be a secret in it: path and query."""
    parts = urlsplit(url)
    rest = "" if parts.path in ("", "/") and not parts.query else "/..."
    return f"{parts.scheme}://{parts.netloc}{rest}"
