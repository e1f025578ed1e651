"""Violations of the protocol; the error codes of Kafka are in broker_core/errors.py."""

from __future__ import annotations


class ProtocolError(ValueError):
    """Bytes or a message violate the protocol."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that violate the protocol."""


class LocalProtocolError(ProtocolError):
    """A message to be encoded does not fit its schema."""
