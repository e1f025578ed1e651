"""Speaks with the coordinator of a classic group, on an asyncio event loop.

For groups whose protocol is not that of consumers, which librdkafka does not offer. What a member
does about an answer is for the caller. Heartbeats have a connection of their own: on one connection
they would wait behind a JoinGroup, which the coordinator answers when all members have come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from waylog.kafka.connection.broker_connection import BrokerConnection, addresses
from waylog.kafka.connection.security import ConnectionSecurity
from waylog.kafka.protocol import group_requests, requests
from waylog.kafka.protocol.error_codes import ErrorCode, reason_of
from waylog.kafka.protocol.group_requests import Joined, Synced
from waylog.kafka.protocol.requests import Broker, MalformedAnswer

_ASK_S: Final = 10.0
#: Seconds beyond the rebalance timeout after which the coordinator should have answered.
_JOIN_MORE_S: Final = 5.0
_T = TypeVar("_T")


class CoordinatorUnreachable(Exception):
    """No broker answers, or none coordinates the group at present; waiting may help."""


class GroupForbidden(Exception):
    """This client may not be a member of the group."""


class GroupCoordinator:
    """The requests of one member; `close` ends the connections."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        group: str,
        security: ConnectionSecurity,
    ) -> None:
        """Raises ConfigError for addresses that are none."""
        self._bootstrap: Final = addresses(bootstrap_servers)
        self._client_id: Final = client_id
        self._group: Final = group
        self._security: Final = security
        self._broker: Broker | None = None
        self._joining: BrokerConnection | None = None
        self._beating: BrokerConnection | None = None

    async def join(
        self,
        member_id: str,
        protocol_type: str,
        protocols: Sequence[tuple[str, bytes]],
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> Joined:
        """Join the group, which takes until all have come; raises CoordinatorUnreachable."""
        parts = group_requests.join_group(
            self._group,
            member_id,
            protocol_type,
            protocols,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        timeout_s = rebalance_timeout_ms / 1000 + _JOIN_MORE_S
        return await self._ask(
            requests.JOIN_GROUP, parts, group_requests.read_join_group, timeout_s
        )

    async def sync(
        self,
        generation: int,
        member_id: str,
        assignments: Mapping[str, bytes],
        *,
        rebalance_timeout_ms: int,
    ) -> Synced:
        """Return this member's assignment; raises CoordinatorUnreachable."""
        parts = group_requests.sync_group(self._group, generation, member_id, assignments)
        timeout_s = rebalance_timeout_ms / 1000 + _JOIN_MORE_S
        return await self._ask(
            requests.SYNC_GROUP, parts, group_requests.read_sync_group, timeout_s
        )

    async def heartbeat(self, generation: int, member_id: str, timeout_s: float) -> int:
        """Return the coordinator's error code; raises CoordinatorUnreachable."""
        parts = group_requests.heartbeat(self._group, generation, member_id)
        try:
            async with asyncio.timeout(timeout_s):
                if self._beating is None or not self._beating.is_open:
                    self._beating = await self._connect(await self._find())
                answer = await self._beating.ask(requests.HEARTBEAT, parts, timeout_s)
            return group_requests.read_error(answer)
        except (OSError, MalformedAnswer) as error:
            self._end(beating=True)
            raise CoordinatorUnreachable(str(error) or "no answer in time") from error

    async def leave(self, member_id: str, timeout_s: float) -> int:
        """Leave the group; return the error code. Raises CoordinatorUnreachable."""
        parts = group_requests.leave_group(self._group, member_id)
        return await self._ask(requests.LEAVE_GROUP, parts, group_requests.read_error, timeout_s)

    def forget(self) -> None:
        """Ask again which broker coordinates the group."""
        self._broker = None
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._end(beating=True)
        self._end(beating=False)

    def _end(self, *, beating: bool) -> None:
        if beating:
            connection, self._beating = self._beating, None
        else:
            connection, self._joining = self._joining, None
        if connection is not None:
            connection.close()

    async def _ask(
        self, api: int, parts: Sequence[bytes], read: Callable[[bytes], _T], timeout_s: float
    ) -> _T:
        try:
            if self._joining is None or not self._joining.is_open:
                self._joining = await self._connect(await self._find())
            return read(await self._joining.ask(api, parts, timeout_s))
        except (OSError, MalformedAnswer) as error:
            self._end(beating=False)
            self._broker = None
            raise CoordinatorUnreachable(str(error) or "no answer in time") from error
        except asyncio.CancelledError:
            # Its answer would be taken for that of the next request.
            self._end(beating=False)
            raise

    async def _connect(self, broker: Broker) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        return await BrokerConnection.connect(loop, broker, self._client_id, self._security)

    async def _find(self) -> Broker:
        if self._broker is not None:
            return self._broker
        reason: Exception | None = None
        for broker in self._bootstrap:
            try:
                connection = await self._connect(broker)
            except OSError as error:
                reason = error
                continue
            try:
                answer = await connection.ask(
                    requests.FIND_COORDINATOR, group_requests.find_coordinator(self._group), _ASK_S
                )
                found = group_requests.read_find_coordinator(answer)
            except (OSError, MalformedAnswer) as error:
                reason = error
                continue
            finally:
                connection.close()
            if found.error == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                raise GroupForbidden(f"not allowed: READ on group {self._group}")
            if found.error:
                raise CoordinatorUnreachable(found.message or reason_of(found.error))
            self._broker = found.broker
            return found.broker
        raise CoordinatorUnreachable(str(reason)) from reason
