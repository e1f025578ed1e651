"""The OpenAPI description of imports and exports."""

from __future__ import annotations

from typing import Any

from gateway.exports.questions import FORMATS
from gateway.http.openapi_operations import OWN_DATA, operation


def own_data_paths() -> dict[str, Any]:
    """Return the paths."""
    return {
        "/v1/imports": {
            "get": operation(OWN_DATA, "The user's imports, the newest first"),
            "post": operation(
                OWN_DATA,
                'Announce files: {"files": [{"name": .., "bytes": ..}], "device": ..}, device by '
                "default one named after them",
                body=True,
                status="201",
            ),
        },
        "/v1/imports/{import}": {
            "get": operation(OWN_DATA, "How far one is", path=("import",)),
            "delete": operation(
                OWN_DATA,
                "Erase what it has brought, or with fixes=keep only take it off the list",
                path=("import",),
                query=("fixes",),
                status="204",
            ),
        },
        "/v1/imports/{import}/files/{number}": {
            "patch": operation(
                OWN_DATA,
                "Add the body to a file, whose end has to be at the header Upload-Offset",
                path=("import", "number"),
                body=True,
            )
        },
        "/v1/imports/{import}/run": {
            "post": operation(
                OWN_DATA,
                "Read the files once all are there, or again after an interruption",
                path=("import",),
                status="202",
            )
        },
        "/v1/export": {
            "get": operation(
                OWN_DATA,
                "The fixes of own devices in a format, or, without `device`, a zip of everything "
                "that there is of the user",
                query=("device", "format", "from", "to"),
                media_types=(
                    *(each.content_type for each in FORMATS.values()),
                    "application/zip",
                ),
            )
        },
    }
