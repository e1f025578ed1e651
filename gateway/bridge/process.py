"""One bridge process: puts the parts together, runs, and takes them apart."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.admission import Admission, open_admission
from gateway.bridge.cluster import Cluster, ClusterSettings
from gateway.bridge.inbound import Inbound
from gateway.bridge.outbound import Outbound, Which
from gateway.bridge.secret import use_secret_of
from gateway.erasure_reader import open_erasures
from gateway.key_view import KeyView
from gateway.known_fixes import KnownFixes
from gateway.permissions import Permissions
from gateway.rights import Rights
from gateway.submit import Submitter
from gateway.users import UserStore
from gateway.view_keeper import ViewKeeper
from waylog.batch_producer import open_producer
from waylog.kafka import LogReader
from waylog.notify import notify_ready
from waylog.sealing import opener, sealed_if_configured
from waylog.telemetry import KafkaLogHandler, KafkaTelemetry, now_ms
from waylog.topics import ADDRESS

logger = logging.getLogger(__name__)

_REPORT_S: Final = 60.0
_WATCH_S: Final = 0.5


@dataclass(frozen=True)
class BridgeSettings:
    """What `waylog bridge` is told."""

    bootstrap_servers: str
    cluster: ClusterSettings
    #: Where the ids of the log's fixes outlive the process.
    keys: Path
    #: Newest fixes of each partition that are known at once, even where the rest takes long.
    tail: int = 50_000
    addresses: Which = "seen"
    #: Says who has quotas and who only looks; None: nobody.
    users: Path | None = None


async def serve(settings: BridgeSettings) -> int:
    """Run until SIGTERM or SIGINT (0), or until the log can never be appended to again (1)."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    servers, client_id = settings.bootstrap_servers, settings.cluster.client_id
    async with AsyncExitStack() as stack:
        telemetry = KafkaTelemetry(servers, client_id)
        handler = KafkaLogHandler(telemetry)
        logging.getLogger().addHandler(handler)
        stack.callback(telemetry.close)
        stack.callback(logging.getLogger().removeHandler, handler)
        producer = sealed_if_configured(open_producer(servers, client_id, loop), servers, loop)
        stack.push_async_callback(producer.close)
        # Before the first key is made.
        use_secret_of(settings.keys)
        known_fixes = KnownFixes()
        keeper = ViewKeeper(
            *(servers, client_id, KeyView(known_fixes), None),
            folder=settings.keys,
            tail=settings.tail,
        )
        stack.push_async_callback(keeper.close)
        await keeper.start()
        logger.info("%d ids of fixes are known", len(known_fixes))
        submitter = Submitter(producer, telemetry, loop, known_fixes=known_fixes)

        def publish(topic: str, payload: bytes, *, retain: bool) -> bool:
            return cluster.publish(topic, payload, retain=retain)

        outbound = Outbound(publish, settings.addresses)
        erasures = await stack.enter_async_context(open_erasures(servers, client_id))
        erasures.subscribe(submitter.on_erasures)
        rights_of, admission = await _rights(settings.users, stack)
        inbound = Inbound(submitter, loop, now_ms, outbound.seen, rights_of, admission)
        cluster = Cluster(settings.cluster, loop, inbound.take)
        inbound.cluster = cluster
        stack.callback(inbound.close)
        if settings.addresses != "none":
            reader = LogReader(
                servers,
                f"{client_id}-{ADDRESS}",
                [ADDRESS],
                loop,
                on_records=outbound.on_records,
                tail=0,
                opened=opener(servers),
            )
            reader.start()
            stack.push_async_callback(reader.close)
        cluster.start()
        stack.push_async_callback(cluster.close)
        if settings.addresses != "none":
            erasures.subscribe(outbound.on_erasures)
        ready = asyncio.ensure_future(cluster.ready.wait())
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((ready, stopping), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        stopping.cancel()
        if not stop.is_set():
            notify_ready()
            logger.info("bridge ready mqtt=%s", settings.cluster.endpoint)
        reported = loop.time()
        while not stop.is_set():
            if producer.fatal is not None:
                logger.critical("stopping: %s", producer.fatal)
                return 1
            outbound.send_waiting()
            if loop.time() - reported >= _REPORT_S:
                reported = loop.time()
                logger.info(
                    "%s; addresses published: %d, dropped: %d",
                    ", ".join(f"{name}: {count}" for name, count in inbound.counters.items()),
                    outbound.published,
                    outbound.dropped,
                )
            try:
                async with asyncio.timeout(_WATCH_S):
                    await stop.wait()
            except TimeoutError:
                continue
        logger.info("stopping")
    return 0


async def _rights(
    users: Path | None, stack: AsyncExitStack
) -> tuple[Callable[[str], Rights] | None, Admission | None]:
    """What is said of users, as it changes, and the gate that counts what they send."""
    if users is None:
        return None, None
    store = UserStore(users)
    stack.callback(store.close)
    permissions = Permissions(store)
    watching = asyncio.create_task(permissions.watch())
    stack.callback(watching.cancel)
    admission = open_admission(users, store)
    stack.callback(admission.close)
    return permissions.rights_of, admission
