"""A file that tells a broker process whether all records of the process before it are on disk.

The records of a process that was killed are with the operating system; a machine that lost its
power may have lost some, and a new disk never had any. If nothing can be missing, the controller is
told the former broker epoch, otherwise -1 (PreviousBrokerEpoch of BrokerRegistration, KIP-966): a
replica with unknown records leads only if no other one is eligible.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from broker_core.environment import Environment
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

_FILE: Final = "broker-life.json"
#: Epoch if there was no former process, or if its records may be incomplete.
UNKNOWN: Final = -1


class _Stored(msgspec.Struct):
    broker_epoch: int
    boot_id: str
    has_ended: bool


class CleanShutdownFile:
    """The file in a log directory that tells a new process about the former one."""

    def __init__(self, directory: Path, environment: Environment) -> None:
        """Read the file; raises OSError."""
        self._path = directory / _FILE
        self._environment = environment
        self._epoch = UNKNOWN
        #: Broker epoch of the former process if all its records are on disk, else UNKNOWN.
        self.former_epoch = self._load()

    def _load(self) -> int:
        disk = self._environment.disk
        if disk.size(self._path) is None:
            return UNKNOWN
        try:
            stored = msgspec.json.decode(disk.read(self._path), type=_Stored)
        except MALFORMED as error:
            logger.warning(
                "%s is damaged (%s): taken for a start on an empty disk", self._path, error
            )
            return UNKNOWN
        same_boot = stored.boot_id != "" and stored.boot_id == self._environment.boot_id
        return stored.broker_epoch if stored.has_ended or same_boot else UNKNOWN

    def distrust_former(self) -> None:
        """Take note that records of the former process are not on disk."""
        self.former_epoch = UNKNOWN

    def begin(self, epoch: int) -> None:
        """Store the broker epoch that the controller has given this process."""
        self._epoch = epoch
        self._store(has_ended=False)

    def end(self) -> None:
        """Store that everything written is on the medium, and that nothing more will be written."""
        if self._epoch != UNKNOWN:
            self._store(has_ended=True)

    def distrust(self) -> None:
        """Remove the file after a disk error: the next process may find incomplete records."""
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
