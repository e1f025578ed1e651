"""Secrets of listeners that change while they are open: certificates, and keys of tokens."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from broker_core.configuration.listeners import ListenerConfig
from broker_core.security.access_tokens import TokenValidator, token_settings
from broker_core.security.oauthbearer import OAUTHBEARER
from broker_core.security.tls_reload import ReloadableContext
from broker_core.server.network.key_source import KeySource
from waylog.config import ConfigError
from waylog.network.served_hosts import WILDCARDS
from waylog.network.tls.certificate_dates import DateWarnings
from waylog.process.log_throttle import RepeatedFailure

logger = logging.getLogger(__name__)


class ListenerSecrets:
    """Secrets by listener name. Raises ConfigError for what cannot be read at the start."""

    def __init__(
        self,
        listeners: Iterable[ListenerConfig],
        check_interval_ms: int,
        host_of: Callable[[ListenerConfig], str],
    ) -> None:
        """`host_of` returns where others are told to connect to a listener."""
        self._check_interval_s = check_interval_ms / 1000
        self._contexts: dict[str, ReloadableContext] = {}
        self._validators: dict[str, TokenValidator] = {}
        self._hosts: dict[str, str] = {}
        self._warnings: defaultdict[str, DateWarnings] = defaultdict(DateWarnings)
        self._failures: defaultdict[str, RepeatedFailure] = defaultdict(RepeatedFailure)
        for each in listeners:
            if each.protocol.uses_tls:
                self._contexts[each.name] = _context(each)
                host = host_of(each)
                is_verified = each.properties.get("ssl.endpoint.identification.algorithm", "https")
                self._hosts[each.name] = host if is_verified and host not in WILDCARDS else ""
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
        for name in self._contexts:
            self._warn_of_host(name)
        if self._contexts:
            self._warn_of_dates()
            self._schedule()

    def problem(self) -> str | None:
        """Return which listeners' certificates are not valid now, None if all are."""
        now = datetime.now(UTC)
        found = [
            f"listener {name}: {trouble}"
            for name, context in self._contexts.items()
            if context.certificates is not None
            and (trouble := context.certificates.dates.trouble(now)) is not None
        ]
        return "; ".join(found) or None

    def expiries(self) -> dict[str, float]:
        """Return when the certificates of each listener expire, in seconds since 1970."""
        return {
            name: context.certificates.dates.not_after.timestamp()
            for name, context in self._contexts.items()
            if context.certificates is not None
        }

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
                    self._warn_of_host(name)
                self._failures[name].succeeded()
            except ConfigError as error:
                if self._failures[name].is_new(error):
                    logger.error(
                        "listener %s keeps its certificates, and tries the new ones again: %s",
                        name,
                        error,
                    )
        self._warn_of_dates()
        self._schedule()

    def _warn_of_dates(self) -> None:
        now, now_s = datetime.now(UTC), asyncio.get_running_loop().time()
        for name, context in self._contexts.items():
            shown = context.certificates
            dates = None if shown is None else shown.dates
            warning = self._warnings[name].due(dates, now, now_s)
            if shown is not None and warning is not None:
                logger.warning("listener %s: %s: %s", name, shown.source, warning)

    def _warn_of_host(self, name: str) -> None:
        shown, host = self._contexts[name].certificates, self._hosts[name]
        if shown is not None and host and not shown.names(host):
            logger.warning(
                "listener %s: %s: the certificate is not for %s, where others are told to "
                "connect, but for %s",
                name,
                shown.source,
                host,
                ", ".join(sorted(shown.hosts)) or "no host",
            )


def _context(listener: ListenerConfig) -> ReloadableContext:
    try:
        properties = dict(listener.properties)
        if listener.protocol.uses_sasl and "ssl.client.auth" not in properties:
            # As in Kafka: a client that logs in with SASL needs no certificate in addition.
            properties["ssl.client.auth"] = "none"
        return ReloadableContext(properties)
    except ConfigError as error:
        raise ConfigError(f"listener {listener.name}: {error}") from None
