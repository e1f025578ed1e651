"""An admin client for requests that librdkafka's does not offer, over our own connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from waylog.administration.log_access import LogAccess
from waylog.cli import CommandError
from waylog.kafka.connection.broker_connection import BrokerConnection, addresses
from waylog.kafka.connection.properties import configured_properties
from waylog.kafka.connection.security import ConnectionSecurity, connection_security
from waylog.kafka.protocol import cluster_requests, requests
from waylog.kafka.protocol.cluster_requests import (
    Answer,
    LogDirectory,
    Members,
    Moving,
    Outcome,
    PartitionState,
    Place,
    Quorum,
)
from waylog.kafka.protocol.error_codes import ErrorCode, reason_of
from waylog.kafka.protocol.requests import Broker, MalformedAnswer

T = TypeVar("T")

#: Seconds that a request may take in a cluster that lacks nothing.
REQUEST_S: Final = 30.0
#: Seconds after which it is asked whether the cluster lacks something.
LATE_S: Final = 4.0
#: Seconds for TCP, TLS and the login of each broker that is tried.
_CONNECT_S: Final = 3.0
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)  # fmt: skip


class ClusterError(Exception):
    """A cluster refuses a request; the text says why."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message or reason_of(code))
        self.retriable = code in _RETRIABLE


class ClusterAdmin:
    """Sends requests to one broker and waits for each answer.

    All methods raise OSError, ClusterError and MalformedAnswer; CommandError if an answer is late
    and the cluster lacks something.
    """

    def __init__(
        self,
        runner: asyncio.Runner,
        connection: BrokerConnection,
        request_s: float,
        find_lack: Callable[[], str],
    ) -> None:
        self._runner = runner
        self._connection = connection
        self._request_s = request_s
        self._find_lack = find_lack

    @property
    def _timeout_ms(self) -> int:
        return int(self._request_s * 1000)

    def members(self) -> Members:
        """Return the brokers that run."""
        return _value_of(
            self._ask(
                requests.DESCRIBE_CLUSTER,
                cluster_requests.describe_cluster(),
                cluster_requests.read_describe_cluster,
            )
        )

    def partitions(self) -> dict[Place, PartitionState]:
        """Return the partitions of all topics."""
        return self._ask(
            requests.METADATA,
            cluster_requests.all_partitions(),
            cluster_requests.read_all_partitions,
        )

    def elect_leaders(self, kind: int, places: Iterable[Place] | None) -> dict[Place, Outcome]:
        """Elect leaders of these partitions, or of all where that is needed."""
        return _value_of(
            self._ask(
                requests.ELECT_LEADERS,
                cluster_requests.elect_leaders(kind, places, self._timeout_ms),
                cluster_requests.read_elect_leaders,
            )
        )

    def alter_reassignments(
        self, moves: Mapping[Place, Sequence[int] | None]
    ) -> dict[Place, Outcome]:
        """Move replicas to other brokers; None takes back what is being moved."""
        return _value_of(
            self._ask(
                requests.ALTER_PARTITION_REASSIGNMENTS,
                cluster_requests.alter_reassignments(moves, self._timeout_ms),
                cluster_requests.read_alter_reassignments,
            )
        )

    def reassignments(self) -> dict[Place, Moving]:
        """Return the partitions whose replicas are being moved."""
        return _value_of(
            self._ask(
                requests.LIST_PARTITION_REASSIGNMENTS,
                cluster_requests.list_reassignments(self._timeout_ms),
                cluster_requests.read_list_reassignments,
            )
        )

    def quorum(self) -> Quorum | None:
        """Return the quorum of the controllers; None if the cluster shows none."""
        return _value_of(
            self._ask(
                requests.DESCRIBE_QUORUM,
                cluster_requests.describe_quorum(),
                cluster_requests.read_describe_quorum,
            )
        )

    def log_directories(self) -> list[LogDirectory]:
        """Return the folders of this broker, and what its logs take."""
        return _value_of(
            self._ask(
                requests.DESCRIBE_LOG_DIRS,
                cluster_requests.describe_log_dirs(),
                cluster_requests.read_describe_log_dirs,
            )
        )

    def share_groups(self) -> dict[str, str]:
        """Return the states of the share groups that this broker coordinates, by name."""
        return _value_of(
            self._ask(
                requests.LIST_GROUPS,
                cluster_requests.list_share_groups(),
                cluster_requests.read_list_groups,
            )
        )

    def _ask(self, api: int, parts: Sequence[bytes], read: Callable[[bytes], T]) -> T:
        return read(self._runner.run(self._answer(api, parts)))

    async def _answer(self, api: int, parts: Sequence[bytes]) -> bytes:
        asked = asyncio.ensure_future(self._connection.ask(api, parts, self._request_s))
        done, _ = await asyncio.wait({asked}, timeout=LATE_S)
        if not done and (lack := await asyncio.to_thread(self._find_lack)):
            asked.cancel()
            raise CommandError(lack)
        return await asked


def _value_of(answer: Answer[T]) -> T:
    if answer.error:
        raise ClusterError(answer.error, answer.message)
    return answer.value


@contextmanager
def cluster_admin(
    access: LogAccess,
    *,
    brokers: Sequence[Broker] = (),
    connect_s: float = _CONNECT_S,
    request_s: float = REQUEST_S,
    find_lack: Callable[[], str] = str,
) -> Iterator[ClusterAdmin]:
    """Connect with the command's options and the environment's settings.

    The first of `brokers`, or of the bootstrap servers, is asked that takes the connection within
    `connect_s`. `find_lack` is called in a thread when an answer is late, and returns what the
    cluster lacks, or nothing. Raises OSError if no broker takes the connection, ConfigError.
    """
    secured = connection_security(configured_properties() | dict(access.properties))
    wanted = brokers or addresses(access.bootstrap_servers)
    with asyncio.Runner() as runner:
        connection = runner.run(_connected(wanted, access.client_id, secured, connect_s))
        try:
            yield ClusterAdmin(runner, connection, request_s, find_lack)
        finally:
            runner.run(_close(connection))


async def _connected(
    brokers: Sequence[Broker], client_id: str, secured: ConnectionSecurity, connect_s: float
) -> BrokerConnection:
    failure: OSError = ConnectionError("no broker is named")
    for broker in brokers:
        try:
            async with asyncio.timeout(connect_s):
                return await BrokerConnection.connect(
                    asyncio.get_running_loop(), broker, client_id, secured
                )
        except OSError as error:
            failure = error
    raise failure


async def _close(connection: BrokerConnection) -> None:
    connection.close()
    await asyncio.sleep(0)  # the transport closes its socket in the next turn of the loop


#: What the functions of this module raise when a cluster does not do what it is asked.
FAILURES: Final = (OSError, ClusterError, MalformedAnswer)


def refusal(error: Exception) -> str:
    """Return what went wrong as a sentence."""
    return str(error) or "it does not answer in time"
