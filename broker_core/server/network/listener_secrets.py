"""Secrets of listeners that change while they are open: certificates, and keys of tokens."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Iterable

from broker_core.configuration.listeners import ListenerConfig
from broker_core.security.access_tokens import TokenValidator, token_settings
from broker_core.security.oauthbearer import OAUTHBEARER
from broker_core.security.tls_reload import ReloadableContext
from broker_core.server.network.key_source import KeySource
from waylog.config import ConfigError

logger = logging.getLogger(__name__)


class ListenerSecrets:
    """Secrets by listener name. Raises ConfigError for what cannot be read at the start."""

    def __init__(self, listeners: Iterable[ListenerConfig], check_interval_ms: int) -> None:
        self._check_interval_s = check_interval_ms / 1000
        self._contexts: dict[str, ReloadableContext] = {}
        self._validators: dict[str, TokenValidator] = {}
        for each in listeners:
            if each.protocol.uses_tls:
                self._contexts[each.name] = _context(each)
            if OAUTHBEARER in each.sasl_mechanisms:
                settings = token_settings(each.properties)
                self._validators[each.name] = TokenValidator(settings, time.time)
        self._sources: list[KeySource] = []
        self._timer: asyncio.TimerHandle | None = None

    def context(self, name: str) -> ssl.SSLContext | None:
        """Return the TLS context of a listener; None if it does not use TLS."""
        found = self._contexts.get(name)
        return None if found is None else found.context

    def validator(self, name: str) -> TokenValidator | None:
        """Return the validator of a listener's access tokens; None without OAUTHBEARER."""
        return self._validators.get(name)

    async def start(self) -> None:
        """Fetch the keys of tokens, and check everything for changes from now on."""
        self._sources = [KeySource(each) for each in self._validators.values()]
        for source in self._sources:
            await source.start()
        if self._contexts:
            self._schedule()

    async def close(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()
        for source in self._sources:
            await source.close()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._check_interval_s, self._check)

    def _check(self) -> None:
        for name, context in self._contexts.items():
            try:
                if context.reload_if_changed():
                    logger.info("listener %s: new certificates for new connections", name)
            except ConfigError as error:
                logger.error("listener %s keeps its certificates: %s", name, error)
        self._schedule()


def _context(listener: ListenerConfig) -> ReloadableContext:
    try:
        properties = dict(listener.properties)
        if listener.protocol.uses_sasl and "ssl.client.auth" not in properties:
            # As in Kafka: a client that logs in with SASL needs no certificate in addition.
            properties["ssl.client.auth"] = "none"
        return ReloadableContext(properties)
    except ConfigError as error:
        raise ConfigError(f"listener {listener.name}: {error}") from None
