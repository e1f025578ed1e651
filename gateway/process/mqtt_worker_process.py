"""A worker that only speaks MQTT: many share the port, and one gateway has the views."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from gateway.bodies.parsing import Parsing
from gateway.fixes.erasure_reader import open_erasures
from gateway.friends.friend_events import FriendEventFilter
from gateway.friends.friend_filter import FRIEND_FILTER_SECRET, FriendFilter
from gateway.limits.addresses import Addresses, TrustedProxies
from gateway.limits.bounds import HttpLimits
from gateway.limits.failed_logins import open_failed_logins
from gateway.mqtt.journal.kafka_journal import ensure_mapped_topics, open_journal
from gateway.mqtt.listening.certificates import listen_with_tls
from gateway.mqtt.listening.listener import MqttServer, start_mqtt
from gateway.mqtt.listening.options import within_machine
from gateway.mqtt.listening.scram import mechanisms_over
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.workers.membership import DeduplicatingSubmitter, about_fixes, join
from gateway.mqtt.workers.relay_client import NoAddresses, RelayClient
from gateway.mqtt.workers.retained_questions import RetainedQuestions
from gateway.mqtt.workers.worker_peers import WorkerPeers
from gateway.notices.push import Pusher
from gateway.observability.push_ledger import PushLedger
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
from waylog.process.background import spawn
from waylog.process.file_limit import room_for_connections
from waylog.process.garbage_collection import tune_garbage_collector
from waylog.sealing.sealing import LogProducer, check_writer_has_key, sealed_if_configured


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
    failed_logins = open_failed_logins(settings.users, store, HttpLimits())
    stack.callback(failed_logins.close)
    authenticator = Authenticator(store, open_mode=settings.open_mode, failed_logins=failed_logins)
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
    pushes = PushLedger()
    stack.callback(spawn(pushes.run(telemetry), "counting pushes", endless=True).cancel)
    relay = RelayClient(relay_path, pusher.address_changed, pusher.arrived, pusher.noticed)
    running = spawn(relay.run(), "the way to the other workers", endless=True)
    stack.callback(running.cancel)
    await relay.connected.wait()
    await ensure_mapped_topics(settings.bootstrap_servers, settings.mqtt_options.mapping)
    erasures = await stack.enter_async_context(
        open_erasures(settings.bootstrap_servers, settings.client_id)
    )
    await asyncio.to_thread(check_writer_has_key, settings.bootstrap_servers)
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
        is_stored=about_fixes(relay, "known"),
        look_up=about_fixes(relay, "look_up"),
    )
    erasures.subscribe(submitter.on_erasures)
    await asyncio.wait({looking}, timeout=START_S)
    parsing = Parsing()
    stack.push_async_callback(parsing.close)
    parties = ClientIdentifier().open()
    stack.callback(parties.close)

    neighbours: WorkerPeers

    async def join_others(server: MqttServer) -> None:
        nonlocal neighbours
        server.channel.chooses_members = False
        server.channel.count_in(pushes)
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
        failed_logins=failed_logins,
        proxies=TrustedProxies(settings.trusted_proxies) if settings.proxy_protocol else None,
        permissions=permissions,
        telling=FriendEventFilter(friend_filter),
        parsing=parsing,
        reuse_port=settings.share_ports,
        before_listening=join_others,
    )
    places.on_change(server.homes_changed)
    questions = ask_for_retained(server, relay)
    stack.callback(questions.close)

    def reopened() -> None:
        neighbours.opened()
        questions.opened()

    relay.on_open = reopened
    stack.push_async_callback(server.close)
    await listen_with_tls(server, options, stack, reuse_port=settings.share_ports)
    permissions.subscribe(lambda _: authenticator.recheck())
    permissions.subscribe(server.rights_changed)
    stack.callback(spawn(places.watch(), "looking for new places").cancel)
    if not settings.open_mode:
        stack.callback(
            spawn(permissions.watch(), "looking for changed rights", endless=True).cancel
        )
    return server, producer


def ask_for_retained(server: MqttServer, relay: RelayClient) -> RetainedQuestions:
    """Get retained messages for subscriptions from the gateway that has the views."""

    def came(
        subscription: Subscription, topic_filter: str, messages: list[Message], with_stored: bool
    ) -> None:
        server.router.retained_delivery.came(
            subscription, topic_filter, messages, server.time(), with_stored=with_stored
        )
        server.wake()

    questions = RetainedQuestions(relay, came)
    server.router.watch = relay.watch
    server.router.retained_delivery.questions = questions
    for subscription in server.router.all_subscriptions():
        if subscription.share is None:
            relay.watch(subscription.granted_filters, True)
            if subscription.qos:
                questions.ask(subscription, subscription.granted_filters, with_stored=False)
    return questions
