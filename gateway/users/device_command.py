"""`waylog device`: tokens, invitations and cards of single devices."""

from __future__ import annotations

import argparse
import base64
import json
import sqlite3
import sys
from pathlib import Path

from gateway.users.database import UnknownUser, UserStore
from gateway.users.database_place import add_users_argument, find_users
from gateway.users.invitations import link_of, qr_code, qr_picture, settings_of
from gateway.users.rights import FACE_CHARACTERS_MAX
from gateway.users.user_command import database_trouble, open_users
from waylog.cli import CommandError
from waylog.config import DEFAULT_HTTP, http_url, parse_endpoint
from waylog.os_errors import describe_os_error

_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands `token`, `invite`, `card` and `revoke`."""
    parser.epilog = (
        "examples:\n"
        "  waylog device token ada/phone\n"
        "  waylog device invite ada/phone --url https://waylog.example.org\n"
        "  waylog device invite ada/phone --mqtt waylog.example.org:8883 --tls --svg invite.svg\n"
        "  waylog device card ada/phone --name Ada --face ada.jpg\n\n"
        "The token takes the place of a password (user ada), or stands alone in a URL, as in\n"
        "http://HOST:8080/osmand/TOKEN. What is sent with it is always this device's. An\n"
        "invitation holds a new token: whoever scans it is this device."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    token = actions.add_parser("token", help="make a token for one device of a user")
    invite = actions.add_parser("invite", help="make a QR code and a link that set up OwnTracks")
    how = invite.add_mutually_exclusive_group()
    how.add_argument(
        "--url",
        metavar="URL",
        help=f"how phones reach this platform over HTTP (default: http://{DEFAULT_HTTP})",
    )
    how.add_argument("--mqtt", metavar="H:P", help="set up MQTT, at this address, instead")
    invite.add_argument("--tls", action="store_true", help="MQTT with TLS")
    invite.add_argument("--svg", type=Path, metavar="FILE", help="write the QR code as a picture")
    card = actions.add_parser(
        "card",
        help="what a device is called and looks like to friends",
        description="Set what a device is called and looks like to friends. What is not named "
        "stays as it is; without options the present card is shown.",
    )
    card.add_argument("--name", metavar="TEXT")
    card.add_argument("--face", type=Path, metavar="FILE", help="PNG or JPEG, 192 x 192 is enough")
    revoke = actions.add_parser("revoke", help="take the tokens of a device away")
    for action in (token, invite, card, revoke):
        action.add_argument("device", metavar="USER/DEVICE")
        action.add_argument("--json", action="store_true", help="print JSON")
        add_users_argument(action)


def run(arguments: argparse.Namespace) -> int:
    """Run one action; return 0. Raises CommandError."""
    user, separator, device = arguments.device.partition("/")
    if not separator or not device:
        raise CommandError(f"{arguments.device} is not a device: USER/DEVICE is expected")
    arguments.users = find_users(arguments)
    store = open_users(arguments.users)
    try:
        if not store.exists(user):
            raise UnknownUser(user)
        if arguments.action == "token":
            _token(store, user, device, arguments.json)
        elif arguments.action == "invite":
            _invite(store, user, device, arguments)
        elif arguments.action == "card":
            _card(store, arguments)
        elif not store.revoke_device(user, device):
            raise CommandError(f"{arguments.device} has no token")
        elif arguments.json:
            print(json.dumps({"device": arguments.device, "revoked": True}))
    except UnknownUser as error:
        raise CommandError(f"there is no user {error}; `waylog user add {error}`") from error
    except (ValueError, OSError) as error:
        raise CommandError(
            describe_os_error(error) if isinstance(error, OSError) else str(error)
        ) from error
    except sqlite3.Error as error:
        raise database_trouble(arguments.users, error) from error
    finally:
        store.close()
    return 0


def _token(store: UserStore, user: str, device: str, as_json: bool) -> None:
    token = store.add_token(user, device)
    if as_json:
        print(json.dumps({"user": user, "device": device, "token": token}))
    else:
        print(f"token of {user}/{device} (shown only now):", file=sys.stderr)
        print(token)


def _invite(store: UserStore, user: str, device: str, arguments: argparse.Namespace) -> None:
    if arguments.tls and arguments.mqtt is None:
        raise CommandError("--tls is for --mqtt; over HTTP it is --url https://HOST")
    mqtt = None if arguments.mqtt is None else parse_endpoint(arguments.mqtt)
    url = (arguments.url and http_url(arguments.url)) or (
        None if mqtt is not None else f"http://{DEFAULT_HTTP}"
    )
    if arguments.url is None and mqtt is None:
        print(
            f"the invitation leads to {url}, which no phone reaches: give --url http://HOST:PORT "
            "or --mqtt HOST:PORT, as phones see this machine",
            file=sys.stderr,
        )
    token = store.add_token(user, device)
    key = store.rights.of(user).encryption_key
    settings = settings_of(
        user, device, token, url=url, mqtt=mqtt, tls=arguments.tls, encryption_key=key
    )
    link = link_of(settings)
    if arguments.svg is not None:
        arguments.svg.write_bytes(qr_picture(link))
    if arguments.json:
        print(json.dumps({"user": user, "device": device, "link": link, "settings": settings}))
        return
    if arguments.svg is None:
        print(qr_code(link))
    print(link)


def _card(store: UserStore, arguments: argparse.Namespace) -> None:
    """Set what is named, keep the rest, and show what the card has now."""
    card = store.rights.card(arguments.device) or {}
    name = card.get("name") if arguments.name is None else arguments.name
    face = card.get("face") if arguments.face is None else _face(arguments.face)
    if arguments.name is not None or arguments.face is not None:
        store.rights.set_card(arguments.device, name, face)
    if arguments.json:
        told = {"device": arguments.device, "name": name or None, "face": bool(face)}
        print(json.dumps(told))
    else:
        print(f"{arguments.device}: name {name or 'not set'}, face {'set' if face else 'not set'}")


def _face(path: Path | None) -> str | None:
    if path is None:
        return None
    picture = path.read_bytes()
    if not picture.startswith(_PICTURES):
        raise ValueError(f"{path} is neither a PNG nor a JPEG")
    if len(picture) > FACE_CHARACTERS_MAX * 3 // 4:
        raise ValueError(f"{path} is larger than {FACE_CHARACTERS_MAX * 3 // 4096} KB")
    return base64.b64encode(picture).decode()
