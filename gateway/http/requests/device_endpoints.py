"""The addresses at which devices reach the platform, for the page's guide."""

from __future__ import annotations

import msgspec


class DeviceEndpoints(msgspec.Struct, frozen=True, omit_defaults=False):
    """Listeners beside HTTP, and facts that only administrators are shown."""

    #: Port of the plain MQTT listener; None if there is none.
    mqtt_port: int | None = None
    #: Port of the MQTT listener with TLS.
    mqtts_port: int | None = None
    #: The file with the demo user's token, for administrators.
    demo_token: str | None = None
    #: The program `waylog`, for administrators.
    command: str | None = None
