"""What a connector is: the classes that a plugin derives its own from.

A connector checks a configuration and divides the work among tasks; its tasks move the records. The
worker makes one object of the connector's class for each connector, and one of the task's class for
each task. All methods of a connector are called in one thread, those of a task in another. What
they raise makes the connector or the task FAILED, with the traceback in its status.

`docs/connect.md` has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from consumers.connect.configuration.definitions import ConfigDef, ConfigValue
from consumers.connect.configuration.plugins import ExactlyOnceSupport
from consumers.connect.plugins.sink_task import SinkTask, TopicPartition
from consumers.connect.plugins.source_task import OffsetReader, SourceTask

#: The version of a connector that does not say one.
UNDEFINED_VERSION = "undefined"


class ConnectorContext(Protocol):
    """What the worker does for a connector; all methods may be called in any thread."""

    @property
    def offset_reader(self) -> OffsetReader | None:
        """The stored offsets of a source connector; None for a sink connector."""

    def request_task_reconfiguration(self) -> None:
        """Have `task_configs` called again, since the work has to be divided anew."""

    def raise_error(self, error: Exception) -> None:
        """Make the connector FAILED."""


class Connector(ABC):
    """What source and sink connectors have in common."""

    #: A name that configurations may use besides the Python one, such as that of a Java class.
    kafka_name: ClassVar[str | None] = None
    version: ClassVar[str] = UNDEFINED_VERSION
    #: The properties of the connector, without those that all connectors have.
    config_def: ClassVar[ConfigDef] = ConfigDef()

    #: Set before `start`.
    context: ConnectorContext

    @abstractmethod
    def start(self, properties: Mapping[str, str]) -> None:
        """Begin, also after a pause; `properties` have their variables replaced."""

    @abstractmethod
    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return the properties of each task, `max_tasks` at most."""

    def stop(self) -> None:
        """End; called for a pause, too."""
        return

    def validate(self, properties: Mapping[str, str]) -> Mapping[str, ConfigValue]:
        """Return what there is to say about the properties; those not named here are valid."""
        return self.config_def.validate(properties)


class SourceConnector(Connector):
    """Reads records from another system."""

    task_class: ClassVar[type[SourceTask]]

    def exactly_once_support(self, properties: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return whether each record can be written exactly once (KIP-618)."""
        return ExactlyOnceSupport.UNKNOWN

    def can_define_transaction_boundaries(self, properties: Mapping[str, str]) -> bool:
        """Return whether tasks end transactions themselves (`transaction.boundary=connector`)."""
        return False

    def alter_offsets(
        self,
        properties: Mapping[str, str],
        offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> bool:
        """Check offsets that a user wants to set, None to reset one (KIP-875).

        They are pairs of source partition and offset. Return True if nothing else is to be done;
        False if the connector does not say. Raises ConnectException for offsets that are not valid,
        NotImplementedError if they cannot be altered.
        """
        return False


class SinkConnector(Connector):
    """Writes records to another system."""

    task_class: ClassVar[type[SinkTask]]

    def alter_offsets(
        self, properties: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Check offsets that a user wants to set, None to reset one (KIP-875).

        Return and errors are as for source connectors.
        """
        return False


class PartitionSink(SinkConnector):
    """A sink whose tasks have the same properties and share the partitions; it keeps no offsets."""

    def __init__(self) -> None:
        self._properties: Mapping[str, str] = {}

    def start(self, properties: Mapping[str, str]) -> None:
        """Take the properties."""
        self._properties = properties

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return the same properties for each task."""
        return [self._properties] * max_tasks

    def alter_offsets(
        self, properties: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Return True: all offsets are the group's."""
        return True
