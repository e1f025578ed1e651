"""`waylog link`: a one-time link that signs a browser in to the live map."""

from __future__ import annotations

import argparse
import json
import sqlite3

from gateway.users.browser_sessions import CODE_LIFETIME_S
from gateway.users.database_place import add_users_argument, find_users
from gateway.users.user_command import database_trouble, open_users
from waylog.cli import CommandError
from waylog.config import DataDirectory, http_url, read_http_url


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog link`."""
    minutes = CODE_LIFETIME_S // 60
    parser.epilog = (
        "examples:\n"
        "  waylog link              signs in the administrator of this installation\n"
        "  waylog link ada          signs in ada, who then sees what ada may see\n\n"
        f"A link is good once and for {minutes} minutes; the session that it begins lasts 30 days."
        "\nGive it to nobody else, and write it to no file that others can read."
    )
    add = parser.add_argument
    add("user", nargs="?", metavar="USER", help="default: the installation's administrator")
    add_users_argument(parser)
    add(
        "--gateway",
        metavar="URL",
        help="where the browser finds the gateway (default: that of the platform that runs on "
        "--data)",
    )
    add("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the link; return 0. Raises CommandError."""
    users = find_users(arguments)
    data = DataDirectory(arguments.data or users.parent)
    url = http_url(arguments.gateway) if arguments.gateway else read_http_url(data)
    if url is None:
        raise CommandError(
            f"no platform runs on {data.root.resolve()}: start it with `waylog up`, or give "
            "--gateway URL"
        )
    store = open_users(users)
    try:
        user = arguments.user or store.ensure_operator()
        code = store.sessions.new_code(user)
    except KeyError:
        raise CommandError(f"there is no user {arguments.user}") from None
    except sqlite3.Error as error:
        raise database_trouble(users, error) from error
    finally:
        store.close()
    link = sign_in_link(url, code)
    print(json.dumps({"link": link, "valid_s": CODE_LIFETIME_S}) if arguments.json else link)
    return 0


def sign_in_link(url: str, code: str) -> str:
    """Return the page's address with a code in the fragment, which is not sent or logged."""
    return f"{url.rstrip('/')}/#sign-in={code}"
