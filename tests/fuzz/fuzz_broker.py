"""The fuzz targets of the broker: its parsers, with untrusted bytes of clients.

Run by tests/fuzz/run.py, which compiles them with coverage and AddressSanitizer.
"""

from __future__ import annotations

import sys
from contextlib import suppress

import atheris

from broker_core.errors import BrokerError
from broker_core.protocol.decoder import decode
from broker_core.protocol.definitions import APIS
from broker_core.protocol.definitions.messages import decode_request
from broker_core.protocol.encoder import encode
from broker_core.protocol.errors import LocalProtocolError, RemoteProtocolError
from broker_core.protocol.produced_batches import inspect_compressed, validate_batches
from broker_core.protocol.record_reader import read_records
from broker_core.protocol.stored_batches import find_batch, scan_batches, whole_batches

with atheris.instrument_imports(include=["broker_core.security"]):
    from broker_core.security.credentials import ScramUsers
    from broker_core.security.sasl import PlainServer
    from broker_core.security.scram import (
        BY_NAME,
        AuthenticationFailed,
        CredentialLookup,
        ScramServer,
    )

_DECOMPRESSED_MAX = 1024 * 1024


def fuzz_requests(data: bytes) -> None:
    """Fuzz a frame: a decoded request must encode to bytes that decode to the same."""
    try:
        header, body = decode_request(memoryview(bytearray(data)))
    except RemoteProtocolError:
        return
    if body is None or not header.api.serves(header.version):
        return
    plan = header.api.request_plan(header.version)
    with suppress(LocalProtocolError):
        written = encode(plan, body)
        again, _ = decode(plan, memoryview(written))
        # Compare bytes, because a NaN does not equal itself.
        assert encode(plan, again) == written


def fuzz_batches(data: bytes) -> None:
    """Fuzz record batches: they are validated, scanned, read, or rejected with Kafka's errors."""
    buffer = bytearray(data)
    with suppress(BrokerError, RemoteProtocolError):
        for header in validate_batches(memoryview(buffer)):
            inspect_compressed(memoryview(buffer), header, max_bytes=_DECOMPRESSED_MAX)
            read_records(memoryview(buffer), header, max_bytes=_DECOMPRESSED_MAX)
    headers, _, _ = scan_batches(memoryview(buffer), check_crc=False)
    for header in headers:
        with suppress(BrokerError, RemoteProtocolError):
            read_records(memoryview(buffer), header, max_bytes=_DECOMPRESSED_MAX)
    with suppress(BrokerError, RemoteProtocolError):
        whole_batches(memoryview(buffer))
    with suppress(BrokerError, RemoteProtocolError):
        find_batch(memoryview(buffer), 5)


def fuzz_login(data: bytes) -> None:
    """Fuzz messages of SASL: no login may succeed."""
    users = ScramUsers()
    for exchange in (
        PlainServer({"anna": "a long password that nobody guesses"}),
        ScramServer(BY_NAME["SCRAM-SHA-256"], CredentialLookup(users.find)),
    ):
        for message in data.split(b"\xff\xfe"):
            with suppress(AuthenticationFailed):
                exchange.evaluate(message)
        assert exchange.user is None


TARGETS = {"requests": fuzz_requests, "batches": fuzz_batches, "login": fuzz_login}


def main() -> None:
    """Fuzz the target named by the first argument; libFuzzer takes the other arguments."""
    target = TARGETS[sys.argv.pop(1)]
    for api in APIS.values():
        api.request_plan(api.versions[1])
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
