"""How requests that change topics and settings are answered."""

from __future__ import annotations

from typing import Any

from broker_core import errors
from broker_core.server.network.request import Request
from broker_core.server.settings.authority import Done


def answer_each(request: Request, response: dict[str, Any], results: list[dict[str, Any]]) -> Done:
    """Answer when everything is durable. If it is not, nothing of it counts as done."""

    def done(error: errors.BrokerError | None) -> None:
        if error is not None:
            for result in results:
                if not result["error_code"]:
                    result["error_code"] = error.code
                    result["error_message"] = str(error)
        request.reply(response)

    return done
