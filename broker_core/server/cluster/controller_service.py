"""Answers requests of brokers on the active controller's node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from broker_core import errors
from broker_core.cluster.controller import Controller
from broker_core.protocol.definitions import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
)
from broker_core.protocol.schema import AnyApi, Api, RequestBody, ResponseBody
from broker_core.server.cluster.quorum_node import QuorumNode

_Method = Callable[[Controller, RequestBody, float], ResponseBody]


def _served(
    api: Api[RequestBody, ResponseBody], method: _Method[RequestBody, ResponseBody]
) -> tuple[int, _Method[Any, Any]]:
    """Have mypy compare the API with the method that serves it."""
    return api.key, method


_METHODS: Final[dict[int, _Method[Any, Any]]] = dict(
    (
        _served(
            BROKER_REGISTRATION,
            lambda controller, body, now: controller.brokers.register(body, now),
        ),
        _served(
            BROKER_HEARTBEAT, lambda controller, body, now: controller.brokers.heartbeat(body, now)
        ),
        _served(ALTER_PARTITION, lambda controller, body, now: controller.partitions.alter(body)),
        _served(
            ALLOCATE_PRODUCER_IDS,
            lambda controller, body, now: controller.allocate_producer_ids(body),
        ),
    )
)

NOT_CONTROLLER: Final[Any] = {"error_code": errors.NotController.code}


class ControllerService:
    """Runs the controller's methods, and replies when their decisions are committed."""

    def __init__(self, shell: QuorumNode) -> None:
        self._shell = shell
        self._now = asyncio.get_running_loop().time

    @staticmethod
    def serves(api: AnyApi) -> bool:
        """Tell whether brokers send this API to controllers."""
        return api.key in _METHODS

    def perform(
        self,
        api: Api[RequestBody, ResponseBody],
        body: RequestBody,
        reply: Callable[[ResponseBody], None],
    ) -> None:
        """Answer a broker's request, with NotController if this node's is not active."""
        method = _METHODS[api.key]
        responses: list[ResponseBody] = []

        def action(controller: Controller) -> None:
            responses.append(method(controller, body, self._now()))

        def decided(is_committed: bool) -> None:
            reply(responses[0] if is_committed else NOT_CONTROLLER)

        try:
            self._shell.decide(action, decided)
        except errors.NotController:
            reply(NOT_CONTROLLER)
        except errors.KafkaStorageError as refusal:
            refused: Any = {"error_code": refusal.code}
            reply(refused)
