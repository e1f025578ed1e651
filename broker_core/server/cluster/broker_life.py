"""What a broker process knows of the one before it: whether that one's records are all still there.

A process that was killed leaves what it wrote with the system; a machine that lost its power may
have lost it, and a new disk never had it. The controller is told the former broker epoch where
nothing can be missing, and otherwise that nothing is known (PreviousBrokerEpoch of
BrokerRegistration, KIP-966): such a replica leads only if no other one is eligible.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from broker_core.environment import Environment

logger = logging.getLogger(__name__)

_FILE: Final = "broker-life.json"
#: Nothing is known of a former life.
UNKNOWN: Final = -1


class _Stored(msgspec.Struct):
    broker_epoch: int
    boot_id: str
    has_ended: bool


class BrokerLife:
    """The file in a log directory that tells a new process of its former life."""

    def __init__(self, directory: Path, environment: Environment) -> None:
        """Read it; raises OSError."""
        self._path = directory / _FILE
        self._environment = environment
        self._epoch = UNKNOWN
        #: The broker epoch of the former life, where all it has written is there; else UNKNOWN.
        self.former_epoch = self._load()

    def _load(self) -> int:
        disk = self._environment.disk
        if disk.size(self._path) is None:
            return UNKNOWN
        try:
            stored = msgspec.json.decode(disk.read(self._path), type=_Stored)
        except msgspec.DecodeError as error:
            logger.warning(
                "%s is damaged (%s): taken for a start on an empty disk", self._path, error
            )
            return UNKNOWN
        same_boot = stored.boot_id != "" and stored.boot_id == self._environment.boot_id
        return stored.broker_epoch if stored.has_ended or same_boot else UNKNOWN

    def begin(self, epoch: int) -> None:
        """The controller has given this life its epoch."""
        self._epoch = epoch
        self._store(has_ended=False)

    def end(self) -> None:
        """Everything written is on the medium, and nothing more will be."""
        if self._epoch != UNKNOWN:
            self._store(has_ended=True)

    def distrust(self) -> None:
        """The disk has refused something: what the next process finds may not be all."""
        self._epoch = UNKNOWN
        try:
            self._environment.disk.remove(self._path)
        except OSError as error:
            logger.error("%s cannot be removed: %s", self._path, error)

    def _store(self, *, has_ended: bool) -> None:
        stored = _Stored(self._epoch, self._environment.boot_id, has_ended)
        try:
            self._environment.disk.replace(self._path, msgspec.json.encode(stored))
        except OSError as error:
            logger.warning("%s cannot be written: %s", self._path, error)
            self.distrust()
