"""The devices that a command is about, by `--user` and `--device`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from waylog.config import ConfigError


class Chosen(NamedTuple):
    """Devices by name, and users all of whose devices are meant."""

    devices: list[str]  # user/device
    users: list[str]


def chosen_devices(users: Sequence[str], devices: Sequence[str]) -> Chosen:
    """Return what the options choose; raises ConfigError for names that may mean something else.

    With one `--user`, `--device` limits it to these devices, with or without the user's name.
    """
    if not devices or not users:
        for each in devices:
            if not all(each.partition("/")):
                raise ConfigError(f"--device {each}: name it as USER/DEVICE, or say --user too")
        return Chosen(list(dict.fromkeys(devices)), list(dict.fromkeys(users)))
    if len(set(users)) > 1:
        raise ConfigError(
            "--device limits one --user: name devices of several as USER/DEVICE alone"
        )
    user = users[0]
    named = [each if "/" in each else f"{user}/{each}" for each in devices]
    for each in named:
        if each.partition("/")[0] != user or each == f"{user}/":
            raise ConfigError(f"--device {each} is not a device of --user {user}")
    return Chosen(list(dict.fromkeys(named)), [])
