"""Responses to requests that change topics and settings."""

from __future__ import annotations

from typing import Any

from broker_core import errors
from broker_core.server.network.request import Request
from broker_core.server.settings.admin_operations import Done


def answer_each(request: Request, response: dict[str, Any], results: list[dict[str, Any]]) -> Done:
    """Return a callback that answers when all changes are durable, or with an error for all."""

    def done(error: errors.BrokerError | None) -> None:
        if error is not None:
            for result in results:
                if not result["error_code"]:
                    result["error_code"] = error.code
                    result["error_message"] = str(error)
        request.reply(response)

    return done
