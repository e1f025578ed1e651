"""`waylog device`: tokens that are good for one device only."""

from __future__ import annotations

import argparse
import json
import sys

from gateway.user_command import add_users_argument, open_users
from gateway.users import UnknownUser
from waylog.cli import CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommand `token`."""
    parser.epilog = (
        "example:\n"
        "  waylog device token ada/phone\n\n"
        "The token takes the place of a password (user ada), or stands alone in a URL, as in\n"
        "http://HOST:8080/osmand/TOKEN. What is sent with it is always this device's."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    token = actions.add_parser("token", help="make a token for one device of a user")
    token.add_argument("device", metavar="USER/DEVICE")
    token.add_argument("--json", action="store_true", help="print JSON")
    add_users_argument(token)


def run(arguments: argparse.Namespace) -> int:
    """Make a token and print it; returns 0. Raises CommandError."""
    user, separator, device = arguments.device.partition("/")
    if not separator or not device:
        raise CommandError(f"{arguments.device!r} is not a device: USER/DEVICE is expected")
    if not arguments.users.exists():
        raise CommandError(f"{arguments.users} does not exist: no user has been added yet")
    store = open_users(arguments.users)
    try:
        token = store.add_token(user, device)
    except UnknownUser as error:
        raise CommandError(f"there is no user {error}; `waylog user add {error}`") from error
    except ValueError as error:
        raise CommandError(str(error)) from error
    finally:
        store.close()
    if arguments.json:
        print(json.dumps({"user": user, "device": device, "token": token}))
    else:
        print(f"token of {user}/{device} (shown only now):", file=sys.stderr)
        print(token)
    return 0
