"""The actions of `waylog user` that set rights: key, friend, limit, allow, admin."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from typing import Any, Final, get_args

from gateway.formats.values import time_ms
from gateway.mqtt.packets.topics import filter_is_valid
from gateway.mqtt.settings import Settings
from gateway.shares.share import METRES_MAX, METRES_MIN, Precision
from gateway.users.database import UnknownUser, UserStore
from gateway.users.rights import Rights

#: Takes a bound away.
_NONE: Final = "none"
ACTIONS = ("key", "friend", "limit", "allow", "admin")


def add_actions(actions: Any) -> list[argparse.ArgumentParser]:
    """Add the parsers of all actions and return them."""
    key = actions.add_parser("key", help="set the key of a user's encrypted payloads")
    key.add_argument("name", metavar="NAME")
    how = key.add_mutually_exclusive_group()
    how.add_argument("--key-stdin", action="store_true", help="read it from the standard input")
    how.add_argument("--remove", action="store_true", help="payloads are no longer encrypted")
    friend = actions.add_parser("friend", help="let another user see the devices of a user")
    friend.add_argument("name", metavar="NAME")
    friend.add_argument("friend", metavar="FRIEND", help="who may see them")
    how_long = friend.add_mutually_exclusive_group()
    how_long.add_argument("--remove", action="store_true")
    how_long.add_argument(
        "--since",
        type=_time,
        metavar="TIME",
        help="also where they have been since then, e.g. 2026-05-31 (default: from now on)",
    )
    friend.add_argument(
        "--precision",
        choices=get_args(Precision),
        help="exact, the middle of a square (metres, with --metres), or town; the default is "
        "exact, or as it was",
    )
    friend.add_argument(
        "--metres",
        type=int,
        metavar="N",
        help=f"the side of the square: {METRES_MIN} to {METRES_MAX}",
    )
    friend.add_argument(
        "--until",
        type=_time_or_none,
        default=...,
        metavar="TIME",
        help=f"when it ends by itself, or {_NONE} (default: {_NONE}, or as it was)",
    )
    limit = actions.add_parser(
        "limit",
        help="bound what a user may send",
        description="Bound what a user may send. What is not named stays as it is; without options "
        "the present bounds are shown.",
    )
    limit.add_argument("name", metavar="NAME")
    limit.add_argument(
        "--fixes-per-minute", type=_bound, metavar="N", help=f"or {_NONE}: as many as it likes"
    )
    limit.add_argument(
        "--devices", type=_bound, metavar="N", help=f"different devices, or {_NONE}: the usual"
    )
    sending = limit.add_mutually_exclusive_group()
    sending.add_argument("--look-only", action="store_true", help="the user may not send at all")
    sending.add_argument("--may-send", action="store_true", help="undo --look-only")
    allow = actions.add_parser("allow", help="let a user use MQTT topics that are not its own")
    allow.add_argument("name", metavar="NAME")
    allow.add_argument("access", choices=("publish", "subscribe"))
    allow.add_argument("filter", metavar="FILTER", help="topic filter; + and # are wildcards")
    allow.add_argument("--remove", action="store_true")
    admin = actions.add_parser("admin", help="make a user an administrator")
    admin.add_argument("name", metavar="NAME")
    admin.add_argument("--remove", action="store_true", help="an ordinary user again")
    return [key, friend, limit, allow, admin]


def _bound(text: str) -> int | str:
    if text == _NONE:
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: a number or {_NONE} is expected") from None


def _time(text: str) -> int:
    time = time_ms(text)
    if time is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: ISO 8601 is expected")
    return time


def _time_or_none(text: str) -> int | None:
    return None if text == _NONE else _time(text)


def run_action(store: UserStore, arguments: argparse.Namespace) -> None:
    """Run one action. Raises UnknownUser, ValueError."""
    if not store.exists(arguments.name):
        raise UnknownUser(arguments.name)
    actions = {
        "key": _key,
        "friend": _friend,
        "limit": _limit,
        "allow": _allow,
        "admin": _admin,
    }
    done = actions[arguments.action](store, arguments)
    if arguments.json:
        print(json.dumps({"user": arguments.name} | done))


def _key(store: UserStore, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.remove:
        if store.rights.of(arguments.name).encryption_key is None:
            raise ValueError(f"{arguments.name} has no key")
        store.rights.set_encryption_key(arguments.name, None)
        return {"key": None}
    given = arguments.key_stdin
    # OwnTracks accepts at most 32 characters.
    key = sys.stdin.readline().rstrip("\r\n") if given else secrets.token_urlsafe(24)
    store.rights.set_encryption_key(arguments.name, key)
    if given:
        return {}
    if not arguments.json:
        print(f"key of {arguments.name}, for the app's settings:", file=sys.stderr)
        print(key)
    return {"key": key}


def _friend(store: UserStore, arguments: argparse.Namespace) -> dict[str, Any]:
    if not store.exists(arguments.friend):
        raise UnknownUser(arguments.friend)
    if arguments.remove:
        if arguments.friend not in store.rights.friends_of(arguments.name):
            raise ValueError(f"{arguments.friend} is no friend of {arguments.name}")
        store.rights.unfriend(arguments.name, arguments.friend)
    else:
        precision, metres = arguments.precision, arguments.metres
        if precision is None and metres is not None:
            precision = "metres"
        store.rights.befriend(
            arguments.name,
            arguments.friend,
            arguments.since,
            precision=precision,
            metres=metres,
            until=arguments.until,
        )
    friends = store.rights.friends_of(arguments.name)
    shown = store.rights.friendships((arguments.name,)).get((arguments.name, arguments.friend))
    if shown is None:
        return {"friends": friends}
    how = {"precision": shown.precision, "metres": shown.metres, "until": shown.until}
    return {"friends": friends} | how


def _limit(store: UserStore, arguments: argparse.Namespace) -> dict[str, Any]:
    before = store.rights.of(arguments.name)
    fixes = _changed(before.fixes_per_minute, arguments.fixes_per_minute)
    devices = _changed(before.devices_max, arguments.devices)
    if (fixes, devices) != (before.fixes_per_minute, before.devices_max):
        store.rights.set_quota(arguments.name, fixes, devices)
    if arguments.look_only or arguments.may_send:
        store.rights.set_sending(arguments.name, arguments.may_send)
    rights = store.rights.of(arguments.name)
    if not arguments.json:
        print(_describe_limits(arguments.name, rights))
    return {
        "fixes_per_minute": rights.fixes_per_minute,
        "devices": rights.devices_max,
        "may_send": rights.may_send,
    }


def _changed(bound: int | None, given: int | str | None) -> int | None:
    """Return a bound after an option, which is None if it was not given."""
    if given is None:
        return bound
    return None if isinstance(given, str) else given


def _describe_limits(user: str, rights: Rights) -> str:
    fixes, devices = rights.fixes_per_minute, rights.devices_max
    return (
        f"{user} {'may send' if rights.may_send else 'may only look'}; fixes a minute: "
        f"{'unbounded' if fixes is None else fixes}; devices: "
        f"{'as many as the gateway allows everybody' if devices is None else devices}"
    )


def _allow(store: UserStore, arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.remove and not filter_is_valid(arguments.filter, Settings().topic_levels_max):
        raise ValueError(
            f"{arguments.filter!r} is not a topic filter: + stands for one level, # for the rest"
        )
    before = store.rights.of(arguments.name)
    granted = before.publish if arguments.access == "publish" else before.subscribe
    if arguments.remove and arguments.filter not in granted:
        raise ValueError(
            f"{arguments.name} may not {arguments.access} {arguments.filter!r} by a grant; granted "
            f"are: {', '.join(granted) or 'none'}"
        )
    change = store.rights.withdraw if arguments.remove else store.rights.grant
    change(arguments.name, arguments.access, arguments.filter)
    rights = store.rights.of(arguments.name)
    return {"publish": rights.publish, "subscribe": rights.subscribe}


def _admin(store: UserStore, arguments: argparse.Namespace) -> dict[str, Any]:
    store.set_admin(arguments.name, not arguments.remove)
    return {"admin": not arguments.remove}
