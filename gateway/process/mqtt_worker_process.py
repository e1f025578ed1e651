"""A worker that only speaks MQTT: many share the port, and one gateway has the views."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from gateway.bodies.parsing import Parsing
from gateway.fixes.erasure_reader import open_erasures
from gateway.friends.friend_events import FriendEventFilter
from gateway.friends.friend_filter import FRIEND_FILTER_SECRET, FriendFilter
from gateway.limits.addresses import Addresses, TrustedProxies
from gateway.limits.bounds import HttpLimits
from gateway.limits.failed_logins import open_guesses
from gateway.mqtt.journal.kafka_journal import ensure_mapped_topics, open_journal
from gateway.mqtt.listening.certificates import listen_with_tls
from gateway.mqtt.listening.listener import MqttServer, start_mqtt
from gateway.mqtt.listening.options import within_machine
from gateway.mqtt.listening.scram import mechanisms_over
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.requests import RelayUnavailable
from gateway.mqtt.workers.membership import DeduplicatingSubmitter, join
from gateway.mqtt.workers.relay_client import NoAddresses, RelayClient
from gateway.notices.push import Pusher
from gateway.process.gateway_process import GatewaySettings
from gateway.process.lifecycle import Started, serve_until_stopped
from gateway.users.admission import Admission, open_admission
from gateway.users.auth import Authenticator
from gateway.users.database import UserStore
from gateway.users.permissions import Permissions
from gateway.views.places import START_S, Places
from waylog.kafka.batch_producer import BatchProducer
from waylog.network.connection_pool import ConnectionPool
from waylog.network.peer_parties import ClientIdentifier
from waylog.observability.telemetry import KafkaTelemetry
from waylog.process.background import TaskSet, spawn
from waylog.process.file_limit import room_for_connections
from waylog.process.garbage_collection import tune_garbage_collector
from waylog.sealing.sealing import LogProducer, sealed_if_configured

logger = logging.getLogger(__name__)

_QOS: Final = 1


async def serve_mqtt_worker(settings: GatewaySettings, relay_path: Path) -> int:
    """Run until SIGTERM or SIGINT (0), or until the log can never be appended to again (1)."""

    async def start(telemetry: KafkaTelemetry, stack: AsyncExitStack) -> Started:
        server, producer = await _start(settings, relay_path, telemetry, stack)
        tune_garbage_collector()
        return Started(producer, f"http=none mqtt={server.endpoint} relay={relay_path}")

    return await serve_until_stopped(settings.bootstrap_servers, settings.client_id, start)


async def _start(
    settings: GatewaySettings,
    relay_path: Path,
    telemetry: KafkaTelemetry,
    stack: AsyncExitStack,
) -> tuple[MqttServer, LogProducer]:
    assert settings.mqtt is not None
    loop = asyncio.get_running_loop()
    store = UserStore(settings.users)
    stack.callback(store.close)
    admission = (
        Admission.in_memory()
        if settings.open_mode
        else open_admission(
            settings.users, store, settings.devices_per_user, settings.error_bytes_per_user
        )
    )
    stack.callback(admission.close)
    guesses = open_guesses(settings.users, store, HttpLimits())
    stack.callback(guesses.close)
    authenticator = Authenticator(store, open_mode=settings.open_mode, guesses=guesses)
    stack.callback(authenticator.close)
    permissions = Permissions(store, open_mode=settings.open_mode)
    # Homes are needed to filter positions for friends; other places are not needed here.
    places = Places(settings.places, homes_only=True)
    friend_filter = FriendFilter(places, store.rights.secret(FRIEND_FILTER_SECRET))
    places.on_change(friend_filter.homes_changed)
    looking = spawn(places.look_up(), "looking for places")
    stack.callback(looking.cancel)
    producer = sealed_if_configured(
        BatchProducer(settings.bootstrap_servers, settings.client_id, loop),
        settings.bootstrap_servers,
        loop,
    )
    stack.push_async_callback(producer.close)
    pusher = Pusher()
    relay = RelayClient(relay_path, pusher.address_changed, pusher.arrived)
    running = spawn(relay.run(), "the way to the other workers")
    stack.callback(running.cancel)
    await relay.connected.wait()
    await ensure_mapped_topics(settings.bootstrap_servers, settings.mqtt_options.mapping)
    erasures = await stack.enter_async_context(
        open_erasures(settings.bootstrap_servers, settings.client_id)
    )
    journal = await stack.enter_async_context(
        open_journal(
            settings.bootstrap_servers,
            settings.client_id,
            producer,
            erasures,
            shared=True,
            seat=settings.mqtt_options.seat,
        )
    )
    nothing = NoAddresses()
    options = settings.mqtt_options
    submitter = DeduplicatingSubmitter(
        producer,
        telemetry,
        loop,
        error_bytes=admission.error_bytes,
        is_stored=partial(relay.request, "known"),
        look_up=partial(relay.request, "look_up"),
    )
    erasures.subscribe(submitter.on_erasures)
    await asyncio.wait({looking}, timeout=START_S)
    parsing = Parsing()
    stack.push_async_callback(parsing.close)
    parties = ClientIdentifier().open()
    stack.callback(parties.close)

    async def join_others(server: MqttServer) -> None:
        server.channel.chooses_members = False
        neighbours = join(server, journal, relay, submitter)
        relay.on_frame = neighbours.on_frame
        relay.on_open = neighbours.opened
        neighbours.opened()
        await neighbours.in_pace.wait()

    server = await start_mqtt(
        settings.mqtt,
        submitter=submitter,
        authenticator=authenticator,
        address_view=nothing,
        location_view=nothing,
        pusher=pusher,
        settings=within_machine(options.settings),
        journal=journal,
        mapping=options.mapping,
        mechanisms=mechanisms_over(store, open_mode=settings.open_mode),
        admission=admission,
        addresses=Addresses(HttpLimits()),
        connections=ConnectionPool(room_for_connections(), parties.of),
        guesses=guesses,
        proxies=TrustedProxies(settings.trusted_proxies) if settings.proxy_protocol else None,
        permissions=permissions,
        telling=FriendEventFilter(friend_filter),
        parsing=parsing,
        reuse_port=settings.share_ports,
        before_listening=join_others,
    )
    places.on_change(server.homes_changed)
    _ask_for_retained(server, relay)
    stack.push_async_callback(server.close)
    await listen_with_tls(server, options, stack, reuse_port=settings.share_ports)
    permissions.subscribe(lambda _: authenticator.recheck())
    permissions.subscribe(server.rights_changed)
    stack.callback(spawn(places.watch(), "looking for new places").cancel)
    if not settings.open_mode:
        stack.callback(spawn(permissions.watch(), "looking for changed rights").cancel)
    return server, producer


def _ask_for_retained(server: MqttServer, relay: RelayClient) -> None:
    """Get retained messages for subscriptions from the gateway that has the views."""
    asking = TaskSet("asking for what is retained")

    async def ask(
        subscription: Subscription, topic_filters: tuple[str, ...], with_stored: bool
    ) -> None:
        answers = True
        for topic_filter in topic_filters:
            found = []
            try:
                if answers:
                    found = await relay.request("retained", topic_filter)
            except RelayUnavailable:
                logger.warning("a new subscriber gets only what is retained at this worker")
                answers = False
            messages = [
                Message(topic, payload, _QOS, True, latest_only=True, told=told and tuple(told))
                for topic, payload, told in found
            ]
            server.router.retained_delivery.came(
                subscription, topic_filter, messages, server.time(), with_stored=with_stored
            )
            server.wake()

    def ask_retained(
        subscription: Subscription, topic_filters: tuple[str, ...], with_stored: bool
    ) -> None:
        asking.start(ask(subscription, topic_filters, with_stored))

    async def ask_for_resumed(subscriptions: list[Subscription]) -> None:
        for subscription in subscriptions:
            await ask(subscription, subscription.granted_filters, False)

    server.router.watch = relay.watch
    server.router.retained_delivery.ask = ask_retained
    resumed = [each for each in server.router.all_subscriptions() if each.share is None]
    for subscription in resumed:
        relay.watch(subscription.granted_filters, True)
    asking.start(ask_for_resumed([each for each in resumed if each.qos]))
