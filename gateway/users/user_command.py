"""`waylog user`: add, list and revoke users, and set their rights."""

from __future__ import annotations

import argparse
import getpass
import json
import shutil
import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gateway.users.database import UnknownUser, User, UserExists, UserStore, ensure_user
from gateway.users.database_place import add_users_argument, find_users
from gateway.users.rights_command import ACTIONS, add_actions, run_action
from waylog.cli import CommandError

#: Free bytes on the disk below which the database cannot be changed.
_ROOM_BYTES: Final = 256 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands: accounts here, rights in gateway.users.rights_command."""
    parser.epilog = (
        "examples:\n"
        "  waylog user add ada                          prints a token, once\n"
        "  echo -n 'a long phrase' | waylog user add ada --password-stdin\n"
        "  waylog user list --json\n"
        "  waylog user revoke ada                       effective within seconds\n"
        "  waylog user friend ada bob                   bob may see where ada's devices are\n"
        "  waylog user limit ada --fixes-per-minute 60 --devices 3\n"
        "  waylog user key ada                          prints a key for encrypted payloads\n"
        "  waylog user allow ada subscribe 'plant/+/temperature'\n"
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="add a user and print its token")
    add.add_argument("name", metavar="NAME")
    add.add_argument("--admin", action="store_true", help="may read the devices of all users")
    add.add_argument(
        "--password-stdin",
        action="store_true",
        help="read a password from the standard input instead of making a token",
    )
    add.add_argument(
        "--create",
        action="store_true",
        help="make the database of users if there is none yet, before a platform has",
    )
    ensure = actions.add_parser(
        "ensure", help="make sure that a user exists and that a file holds a token of it"
    )
    ensure.add_argument("name", metavar="NAME")
    ensure.add_argument("--token-file", type=Path, required=True, metavar="FILE")
    listing = actions.add_parser("list", help="list the users")
    revoke = actions.add_parser("revoke", help="take all credentials of a user away")
    revoke.add_argument("name", metavar="NAME")
    password = actions.add_parser("password", help="give a user a password, or another one")
    password.add_argument("name", metavar="NAME")
    for action in (add, ensure, listing, revoke, password, *add_actions(actions)):
        add_users_argument(action)
        action.add_argument("--json", action="store_true", help="print JSON")


def open_users(path: Path) -> UserStore:
    """Open the user database. Raises CommandError if that fails."""
    try:
        return UserStore(path)
    except (OSError, sqlite3.Error) as error:
        raise database_trouble(path, error) from error


def database_trouble(path: Path, error: Exception) -> CommandError:
    """Return the error that explains what is wrong with a user database."""
    free = shutil.disk_usage(path.parent).free if path.parent.is_dir() else None
    if free is not None and free < _ROOM_BYTES:
        return CommandError(f"{path}: there is no room left on its disk ({free // 1024} KiB)")
    return CommandError(f"{path} cannot be opened as a database of users: {error}")


def run(arguments: argparse.Namespace) -> int:
    """Run one action; return 0. Raises CommandError."""
    if arguments.action == "ensure":
        arguments.users = find_users(arguments, create=True)
        try:
            ensure_user(arguments.users, arguments.name, arguments.token_file)
        except (ValueError, OSError) as error:
            raise CommandError(str(error)) from error
        except sqlite3.Error as error:
            raise database_trouble(arguments.users, error) from error
        return 0
    create = arguments.action == "add" and arguments.create
    arguments.users = find_users(arguments, create=create)
    store = open_users(arguments.users)
    try:
        if arguments.action == "add":
            _add(store, arguments)
        elif arguments.action == "list":
            _list(store, arguments)
        elif arguments.action == "password":
            store.set_password(arguments.name, _password())
        elif arguments.action in ACTIONS:
            run_action(store, arguments)
        else:
            _revoke(store, arguments)
    except UserExists as error:
        raise CommandError(
            f"user {error} exists; `waylog device token {error}/DEVICE` makes another token"
        ) from error
    except UnknownUser as error:
        raise CommandError(f"there is no user {error}") from error
    except ValueError as error:
        raise CommandError(str(error)) from error
    except sqlite3.Error as error:
        raise database_trouble(arguments.users, error) from error
    finally:
        store.close()
    return 0


def _add(store: UserStore, arguments: argparse.Namespace) -> None:
    password = _password() if arguments.password_stdin else None
    token = store.add(arguments.name, admin=arguments.admin, password=password)
    if arguments.json:
        print(json.dumps({"user": arguments.name, "admin": arguments.admin, "token": token}))
    elif token is not None:
        print(f"user {arguments.name} added; its token (shown only now):", file=sys.stderr)
        print(token)
    else:
        print(f"user {arguments.name} added", file=sys.stderr)


def _password() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("password: ")
    return sys.stdin.readline().rstrip("\r\n")


def _list(store: UserStore, arguments: argparse.Namespace) -> None:
    users = store.users()
    if arguments.json:
        print(
            json.dumps(
                [
                    {
                        "user": user.name,
                        "admin": user.admin,
                        "created": user.created,
                        "revoked": user.revoked,
                        "devices": user.devices,
                        "friends": store.rights.friends_of(user.name),
                        **_rights(store, user.name),
                    }
                    for user in users
                ]
            )
        )
        return
    from waylog.console.common import print_rows

    rows = [
        {
            "user": user.name,
            "added (UTC)": datetime.fromtimestamp(user.created / 1000, UTC).strftime(
                "%Y-%m-%d %H:%M"
            ),
            "may": _standing(store, user),
            "device tokens": ", ".join(user.devices),
        }
        for user in users
    ]
    print_rows(rows, as_json=False)


def _standing(store: UserStore, user: User) -> str:
    if user.revoked:
        return "nothing: revoked"
    sends = "send" if store.rights.of(user.name).may_send else "only look"
    return f"{sends}, administer" if user.admin else sends


def _rights(store: UserStore, user: str) -> dict[str, object]:
    rights = store.rights.of(user)
    return {
        "may_send": rights.may_send,
        "fixes_per_minute": rights.fixes_per_minute,
        "devices_max": rights.devices_max,
        "encrypted": rights.encryption_key is not None,
        "sees": sorted(rights.friends),
        "publish": rights.publish,
        "subscribe": rights.subscribe,
    }


def _revoke(store: UserStore, arguments: argparse.Namespace) -> None:
    store.revoke(arguments.name)
    if arguments.json:
        print(json.dumps({"user": arguments.name, "revoked": True}))
    else:
        print(f"user {arguments.name} revoked", file=sys.stderr)
