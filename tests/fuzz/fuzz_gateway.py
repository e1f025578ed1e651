"""The fuzz targets of the gateway: its parsers, with untrusted bytes of clients.

Run by tests/fuzz/run.py, which compiles them with coverage and AddressSanitizer.
"""

from __future__ import annotations

import sys

import atheris

# All imports are here, because modules imported before are not instrumented.
with atheris.instrument_imports(
    include=["gateway.formats", "gateway.mqtt", "gateway.http.plain.request_head"]
):
    from gateway.fixes.fix_route import FORM_OWNTRACKS, FORM_POSITION
    from gateway.fixes.plain_positions import PlainPositions
    from gateway.formats import (
        Context,
        colota,
        gpslogger,
        home_assistant,
        opengts,
        osmand,
        overland,
        owntracks,
        phonetrack,
        positions,
        traccar,
        ulogger,
    )
    from gateway.http.plain.request_head import recognise
    from gateway.mqtt.packets.decoder import Decoder, Publish
    from gateway.mqtt.packets.packets import Connect, RemoteProtocolError
    from gateway.mqtt.publishing.topic_route import TopicRoute
    from gateway.mqtt.rights.acl import AccessRules
    from gateway.mqtt.sessions.connection import Connection
    from gateway.mqtt.sessions.router import Router
    from gateway.mqtt.settings import Settings
    from gateway.users.auth import Identity

from waylog.messages import decode_fix, encode

_RECEIVED = 1_761_994_812_000
_PARSERS = (
    *(colota, gpslogger, home_assistant, opengts, osmand, overland, owntracks, phonetrack),
    *(positions, traccar, ulogger),
)
_POSITION = TopicRoute("t", True, positions.parse, "ada/phone", FORM_POSITION)
_OWNTRACKS = TopicRoute("owntracks/ada/phone", True, owntracks.parse, "ada/phone", FORM_OWNTRACKS)


def fuzz_packets(data: bytes) -> None:
    """Fuzz packets of a client, of each version, in two chunks."""
    if not data:
        return
    decoder = Decoder(64 * 1024, data[0] % 6)
    middle = len(data) // 2
    try:
        for piece in (data[1:middle], data[middle:]):
            decoder.receive_data(bytes(piece))
            while decoder.next_packet() is not None:
                pass
    except RemoteProtocolError:
        return
    assert decoder.buffered_bytes <= len(data)


def fuzz_session(data: bytes) -> None:
    """Fuzz two clients of one server that send arbitrary packets and disconnect."""
    router = Router(Settings(), AccessRules(), 0.0)
    now = 0.0
    for part in data.split(b"\xff\xfe\xfd"):
        connection = Connection(router, None, now)
        connection.receive_data(bytes(part), now)
        while (event := connection.next_event(now)) is not None:
            if isinstance(event, Connect):
                identity = Identity("ada", None, True)
                connection.accept(event, identity, now, assigned_client_id="assigned")
            elif isinstance(event, Publish):
                connection.acknowledge(event, 0, now)
            else:
                break
        connection.take_outgoing(now)
        router.changed.clear()
        now += 10.0
        connection.lost(now)
        router.advance(now)
    for session in list(router.sessions.values()):
        assert session.connection is None
        router.end(session)
    assert len(router.subscriptions) == 0


def fuzz_fixes(data: bytes) -> None:
    """Fuzz the one-pass parser of fixes: its result must equal that of the full parser."""
    for route in (_POSITION, _OWNTRACKS):
        made = route.record_of(bytes(data), _RECEIVED)
        if made is None:
            continue
        assert route.parse is not None
        context = Context(user="ada", device="phone", received=_RECEIVED, topic=route.topic)
        (fix,) = route.parse(bytes(data), context).fixes
        assert encode(decode_fix(made[0])) == encode(fix)
    for _, device, record, _ in PlainPositions("ada").records(bytes(data), _RECEIVED) or ():
        assert decode_fix(record).device == device.decode()


def fuzz_formats(data: bytes) -> None:
    """Fuzz bodies of apps: parsed fixes must survive encoding and decoding."""
    if not data:
        return
    parser = _PARSERS[data[0] % len(_PARSERS)]
    context = Context(user="ada", device=None, received=_RECEIVED, encryption_key="a passphrase")
    parsed = parser.parse(bytes(data[1:]), context)
    for fix in parsed.fixes:
        assert decode_fix(encode(fix)) == fix
        assert -90 <= fix.lat <= 90 and -180 <= fix.lon <= 180


def fuzz_requests(data: bytes) -> None:
    """Fuzz the head of an HTTP request: it is recognised, or left to the full server."""
    recognise(bytes(data))


TARGETS = {
    "mqtt-packets": fuzz_packets,
    "mqtt-session": fuzz_session,
    "fixes": fuzz_fixes,
    "formats": fuzz_formats,
    "http-heads": fuzz_requests,
}

if __name__ == "__main__":
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
