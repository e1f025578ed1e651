"""The bridge process: builds its parts, runs them, and closes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.bridge.catch_up import CatchUpSubmitter
from gateway.bridge.cluster import Cluster, ClusterSettings
from gateway.bridge.inbound import Inbound
from gateway.bridge.outbound import Outbound, Which
from gateway.bridge.secret import use_secret_of
from gateway.fixes.erasure_reader import open_erasures
from gateway.fixes.known_fixes import KnownFixes
from gateway.process.lifecycle import Started, serve_until_stopped
from gateway.users.admission import Admission, open_admission
from gateway.users.database import UserStore
from gateway.users.permissions import Permissions
from gateway.users.rights import Rights
from gateway.views.snapshots.key_view import KeyView
from gateway.views.snapshots.view_keeper import ViewKeeper
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.topics import ADDRESS
from waylog.observability.telemetry import KafkaTelemetry, now_ms
from waylog.process.background import spawn
from waylog.sealing.sealing import check_writer_has_key, opener, sealed_if_configured

logger = logging.getLogger(__name__)

_REPORT_S: Final = 60.0  # between two log lines
_WATCH_S: Final = 0.5  # between two attempts to send waiting addresses


@dataclass(frozen=True)
class BridgeSettings:
    """The settings of `waylog bridge`."""

    bootstrap_servers: str
    cluster: ClusterSettings
    #: The folder that keeps the keys of the log's fixes between processes.
    keys: Path
    #: Newest fixes of each partition that are read before the start; older ones may take long.
    tail: int = 50_000
    addresses: Which = "seen"
    #: The database with users' quotas and rights; None: neither is applied.
    users: Path | None = None


async def serve(settings: BridgeSettings) -> int:
    """Run until SIGTERM or SIGINT (0), or until the log can never be appended to again (1)."""

    async def start(telemetry: KafkaTelemetry, stack: AsyncExitStack) -> Started:
        return await _start(settings, telemetry, stack)

    return await serve_until_stopped(
        settings.bootstrap_servers, settings.cluster.client_id, start, name="bridge"
    )


async def _start(
    settings: BridgeSettings, telemetry: KafkaTelemetry, stack: AsyncExitStack
) -> Started:
    loop = asyncio.get_running_loop()
    servers, client_id = settings.bootstrap_servers, settings.cluster.client_id
    producer = sealed_if_configured(BatchProducer(servers, client_id, loop), servers, loop)
    stack.push_async_callback(producer.close)
    # This has to precede the first key.
    use_secret_of(settings.keys)
    known_fixes = KnownFixes()
    keeper = ViewKeeper(
        *(servers, client_id, KeyView(known_fixes), None),
        folder=settings.keys,
        tail=settings.tail,
    )
    stack.push_async_callback(keeper.close)
    await keeper.start()
    await asyncio.to_thread(check_writer_has_key, servers)
    logger.info("%d ids of fixes are known", len(known_fixes))
    rights_of, admission = await _rights(settings.users, stack)
    submitter = CatchUpSubmitter(
        *(producer, telemetry, loop),
        known_fixes=known_fixes,
        error_bytes=None if admission is None else admission.error_bytes,
        all_known=keeper.all_known,
        before_ms=now_ms(),
        # The other half of the in-flight window is left for fixes that do not wait.
        waiting_max=settings.cluster.in_flight_max // 2,
    )
    waiting = spawn(submitter.submit_waiting(), "what waits for older records")
    stack.callback(waiting.cancel)

    def publish(topic: str, payload: bytes, *, retain: bool) -> bool:
        return cluster.publish(topic, payload, retain=retain)

    outbound = Outbound(publish, settings.addresses)
    erasures = await stack.enter_async_context(open_erasures(servers, client_id))
    erasures.subscribe(submitter.on_erasures)
    inbound = Inbound(submitter, loop, now_ms, outbound.seen, rights_of, admission)
    cluster = Cluster(settings.cluster, loop, inbound.take)
    inbound.cluster = cluster
    stack.callback(inbound.close)
    if settings.addresses != "none":
        reader = BatchReader(
            servers,
            f"{client_id}-{ADDRESS}",
            ADDRESS,
            loop,
            on_records=outbound.on_records,
            tail=0,
            opened=opener(servers, is_repeated=True),
        )
        reader.start()
        stack.push_async_callback(reader.close)
    cluster.start()
    stack.push_async_callback(cluster.close)
    if settings.addresses != "none":
        erasures.subscribe(outbound.on_erasures)
    sending = spawn(_keep_sending(inbound, outbound), "bridge to the cluster", endless=True)
    stack.callback(sending.cancel)
    await cluster.ready.wait()
    return Started(producer, f"mqtt={settings.cluster.endpoint}")


async def _keep_sending(inbound: Inbound, outbound: Outbound) -> None:
    """Send addresses that have waited for the cluster, and log the counters from time to time."""
    loop = asyncio.get_running_loop()
    reported = loop.time()
    while True:
        await asyncio.sleep(_WATCH_S)
        outbound.send_waiting()
        if loop.time() - reported >= _REPORT_S:
            reported = loop.time()
            logger.info(
                "%s; addresses published: %d, dropped: %d",
                ", ".join(f"{name}: {count}" for name, count in inbound.counters.items()),
                outbound.published,
                outbound.dropped,
            )


async def _rights(
    users: Path | None, stack: AsyncExitStack
) -> tuple[Callable[[str], Rights] | None, Admission | None]:
    """Open the users' rights, which follow changes, and the admission that counts messages."""
    if users is None:
        return None, None
    store = UserStore(users)
    stack.callback(store.close)
    permissions = Permissions(store)
    watching = spawn(permissions.watch(), "looking for changed rights", endless=True)
    stack.callback(watching.cancel)
    admission = open_admission(users, store)
    stack.callback(admission.close)
    return permissions.rights_of, admission
