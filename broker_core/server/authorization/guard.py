"""Permission checks and other functions that all authorization rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from broker_core.configuration.config import BrokerConfig
from broker_core.protocol.schema import RequestBody, ResponseBody
from broker_core.security.acl import CLUSTER_NAME, Operation, ResourceType
from broker_core.security.authorizer import Authorizer
from broker_core.server.network.request import Request
from broker_core.server.partitions.topics import TopicRegistry

Entry = TypeVar("Entry")

#: Returns whether the handler is to be called.
Rule = Callable[["Guard[Any, Any]"], bool]

_NO_ID: Final = bytes(16)


class Guarded(Protocol):
    """The parts of a broker that the rules ask about a request."""

    authorizer: Authorizer | None
    config: BrokerConfig
    topics: TopicRegistry


class Guard(Generic[RequestBody, ResponseBody]):
    """Authorization of one request, before its handler runs."""

    __slots__ = ("_authorizer", "body", "broker", "request")

    def __init__(
        self,
        broker: Guarded,
        request: Request[RequestBody, ResponseBody],
        authorizer: Authorizer,
    ) -> None:
        self.broker = broker
        self.request = request
        self.body = request.body
        self._authorizer = authorizer

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Tell whether the client may perform an operation on a resource."""
        request = self.request
        return self._authorizer.allows(
            request.principal, request.host, operation, resource_type, name
        )

    def may_topic(self, operation: Operation, name: str) -> bool:
        """Tell whether the client may perform an operation on a topic."""
        return self.may(operation, ResourceType.TOPIC, name)

    def may_group(self, operation: Operation, name: str) -> bool:
        """Tell whether the client may perform an operation on a group."""
        return self.may(operation, ResourceType.GROUP, name)

    def may_transact(self, operation: Operation, name: str) -> bool:
        """Tell whether the client may perform an operation on a transactional id."""
        return self.may(operation, ResourceType.TRANSACTIONAL_ID, name)

    def may_cluster(self, operation: Operation) -> bool:
        """Tell whether the client may perform an operation on the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Tell whether there can be a resource on which the client may perform an operation."""
        request = self.request
        return self._authorizer.allows_any(
            request.principal, request.host, operation, resource_type
        )

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the operations that the client may perform on a resource, as a bit set."""
        request = self.request
        return self._authorizer.authorized_operations(
            request.principal, request.host, resource_type, name
        )

    def topic_name(self, name: str | None, topic_id: bytes) -> str | None:
        """Return the name of a topic that is named or given by its id; None for an unknown id."""
        if topic_id == _NO_ID:
            return name
        topic = self.broker.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def refuse(self, response: ResponseBody) -> bool:
        """Answer the request in place of its handler."""
        self.request.reply(response)
        return False


def split(
    entries: Iterable[Entry], permitted: Callable[[Entry], bool]
) -> tuple[list[Entry], list[Entry]]:
    """Return (permitted elements, refused elements) of a list of a request."""
    kept: list[Entry] = []
    refused: list[Entry] = []
    for entry in entries:
        (kept if permitted(entry) else refused).append(entry)
    return kept, refused
