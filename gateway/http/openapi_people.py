"""The OpenAPI description of accounts, users, friends and shares."""

from __future__ import annotations

from typing import Any

from gateway.http.openapi_operations import (
    ACCOUNT,
    OPERATING,
    SHARING,
    list_of,
    operation,
    schema,
)


def people_paths() -> dict[str, Any]:
    """Return the paths."""
    return {
        "/v1/account": {
            "get": operation(
                ACCOUNT,
                "What the user signs in with, and where the user is signed in",
                answer=schema("OwnAccount"),
            )
        },
        "/v1/account/password": {
            "put": operation(
                ACCOUNT,
                'Set a password, and end all other sessions: {"new": .., "password": ..}, the '
                "present one unless the session has just begun",
                body=True,
                status="204",
            )
        },
        "/v1/account/sessions": {
            "delete": operation(ACCOUNT, "Sign out everywhere else", status="204")
        },
        "/v1/account/sessions/{session}": {
            "delete": operation(ACCOUNT, "End a session", path=("session",), status="204")
        },
        "/v1/account/second-factor": {
            "post": operation(
                ACCOUNT, "A secret for an app that makes codes", body=True, status="201"
            ),
            "put": operation(
                ACCOUNT, "Turn it on by a code; the answer has recovery codes", body=True
            ),
            "delete": operation(ACCOUNT, "Turn it off", body=True, status="204"),
        },
        "/v1/account/passkeys/options": {
            "post": operation(ACCOUNT, "What a browser makes a passkey of", body=True)
        },
        "/v1/account/passkeys": {
            "post": operation(
                ACCOUNT,
                'Keep the passkey that was made: {"name": .., "passkey": ..}',
                body=True,
                status="201",
                answer=schema("Passkey"),
            )
        },
        "/v1/account/passkeys/{passkey}": {
            "delete": operation(
                ACCOUNT,
                "Remove a passkey, and end the sessions that it began",
                path=("passkey",),
                status="204",
            )
        },
        "/v1/session/passkey-options": {
            "post": operation(ACCOUNT, "What a browser signs in with a passkey with", public=True)
        },
        "/v1/admin/users": {
            "get": operation(
                OPERATING,
                "All users (administrators)",
                answer=list_of("KnownUser"),
            ),
            "post": operation(
                OPERATING,
                'Add a user, and a link that signs in once: {"name": .., "admin": false}',
                body=True,
                status="201",
                answer=schema("Invitation"),
            ),
        },
        "/v1/admin/users/{user}": {
            "patch": operation(
                OPERATING,
                "Set admin, may_send, fixes_per_minute, devices_max",
                body=True,
                path=("user",),
                status="204",
            ),
            "delete": operation(OPERATING, "Revoke a user", path=("user",), status="204"),
        },
        "/v1/admin/users/{user}/invitation": {
            "post": operation(
                OPERATING,
                "Another link that signs a user in",
                path=("user",),
                status="201",
                answer=schema("Invitation"),
            )
        },
        "/v1/friends": {
            "get": operation(
                SHARING,
                "Who sees the user's devices, and whose the user sees",
                answer=schema("Friends"),
            )
        },
        "/v1/friends/{user}": {
            "put": operation(
                SHARING,
                "Let a user see one's devices from now on, or change how: precision, metres, until "
                "(null: without end); what is not named stays as it is, at first exact and without "
                "end",
                path=("user",),
                status="204",
            ),
            "delete": operation(SHARING, "No longer", path=("user",), status="204"),
        },
        "/v1/friends/requests": {
            "get": operation(
                SHARING,
                "Who asks to be shown the user's devices, whom the user has asked, who is blocked",
                answer=schema("FriendRequestLists"),
            )
        },
        "/v1/friends/{user}/request": {
            "post": operation(
                SHARING, "Ask a user to be shown its devices", path=("user",), status="204"
            ),
            "delete": operation(SHARING, "Take this back", path=("user",), status="204"),
        },
        "/v1/friends/{user}/decline": {
            "post": operation(
                SHARING,
                "Decline what a user asks, who may not ask again for a week",
                path=("user",),
                status="204",
            )
        },
        "/v1/friends/{user}/block": {
            "put": operation(
                SHARING,
                "Show a user nothing, and hear no requests of it; the user is not told",
                path=("user",),
                status="204",
            ),
            "delete": operation(SHARING, "Hear a user again", path=("user",), status="204"),
        },
        "/v1/friends/{user}/sight": {
            "delete": operation(
                SHARING, "No longer see a user's devices", path=("user",), status="204"
            )
        },
        "/v1/shares": {
            "get": operation(
                SHARING,
                "The user's shares that are valid",
                answer=list_of("OwnShare"),
            ),
            "post": operation(
                SHARING,
                "A link that shows devices to whoever has it: devices, until, and name, from and "
                "to (a period that has passed; without them live), precision, metres, hides_home",
                body=True,
                status="201",
                answer=schema("NewShare"),
            ),
        },
        "/v1/shares/{share}": {
            "delete": operation(SHARING, "End a share at once", path=("share",), status="204")
        },
        "/v1/shared": {
            "get": operation(
                SHARING,
                "Who shares what, by the token in header Waylog-Share",
                public=True,
                answer=schema("SharedView"),
            )
        },
        "/v1/shared/track": {
            "get": operation(SHARING, "The track of a device of a shared period", public=True)
        },
        "/v1/shared/stream": {
            "get": operation(SHARING, "News of a live share (server-sent events)", public=True)
        },
        "/share": {
            "get": operation(SHARING, "The page that shows a share, /share#TOKEN", public=True)
        },
    }
