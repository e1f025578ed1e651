"""Limits of the MQTT listener. Every buffer, queue and table has one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The listener's limits; sizes in bytes, times in seconds. The defaults suit phones."""

    packet_bytes_max: int = 256 * 1024
    #: The largest packet before a client is authenticated.
    connect_bytes_max: int = 64 * 1024
    connect_timeout_s: float = 10.0
    connections_max: int = 18_000  # a process may often open 20,000 files
    #: Connections beyond `connections_max` that are accepted to be redirected to another server.
    connections_redirected_max: int = 500
    #: Server Reference (section 4.13.2) for clients beyond `connections_max`, and for all clients
    #: when the server stops: HOST or HOST:PORT, several separated by spaces.
    other_server: str | None = None
    #: Server Reference for all clients, permanently: this server accepts nobody any more.
    moved_to: str | None = None
    #: Keep-alive for MQTT 5 clients that ask for a longer one or none; None: no limit.
    keep_alive_max_s: int | None = None
    #: PUBLISH packets of one connection that wait for the log; Receive Maximum in MQTT 5.
    publishes_in_flight_max: int = 100
    #: PUBLISH packets that wait for the log, over all connections of the process.
    all_publishes_in_flight_max: int = 50_000
    all_publish_bytes_in_flight_max: int = 64 * 1024 * 1024
    #: PUBLISH packets of QoS 1 and 2 sent to one client and not acknowledged yet.
    deliveries_in_flight_max: int = 64
    #: Messages queued for one client, connected or not.
    queued_messages_max: int = 1000
    queued_bytes_max: int = 1024 * 1024
    #: Bytes a slow reader has not taken before QoS 0 messages are dropped and others queued.
    outgoing_bytes_max: int = 256 * 1024
    #: Seconds without progress after which a stalled reader is disconnected.
    stalled_reader_timeout_s: float = 60.0
    #: Seconds for which messages beyond a quota are held for a client that has closed its
    #: connection. Without an end its buffers, full of such messages, would keep the server busy.
    gone_client_timeout_s: float = 30.0
    #: Sessions kept for clients that are away; the one away longest is evicted first.
    offline_sessions_max: int = 100_000
    session_expiry_max_s: int = 7 * 24 * 3600
    subscriptions_per_session_max: int = 200
    #: Granted filters of a session: a filter that reaches fifty friends counts fifty times.
    granted_filters_per_session_max: int = 1_000
    #: Refuse subscriptions without rights with 0x87 (not authorized) for MQTT 5 clients. If False,
    #: with 0x80 (unspecified error), which is all that MQTT 3 and some MQTT 5 clients understand.
    refusals_explained: bool = True
    #: Bytes of all topic filters of one session, as the session's record contains them.
    filter_bytes_per_session_max: int = 256 * 1024
    topic_levels_max: int = 128
    topic_aliases_max: int = 16
    retained_messages_max: int = 200_000
    retained_bytes_max: int = 64 * 1024 * 1024

    # --- the shares of one user in common resources ---
    #: True if each user has a share; not in open mode, where user names are not verified.
    users_share: bool = True
    #: Worker processes; each has its part (gateway.mqtt.listening.options.within_machine).
    workers: int = 1
    connections_per_user_max: int = 5_000
    #: Sessions of clients that are away; the user's session away longest is evicted.
    offline_sessions_per_user_max: int = 1_000
    #: Bytes of messages queued for or in flight to clients, and of wills.
    held_bytes_max: int = 512 * 1024 * 1024
    held_bytes_per_user_max: int = 20 * 1024 * 1024
    #: Bytes of publishes that wait for the log, above which the user's clients are not read.
    publish_bytes_in_flight_per_user_max: int = 8 * 1024 * 1024
    #: Bytes of incomplete packets beyond 4 KiB of each; counted by address before CONNECT.
    incomplete_bytes_max: int = 64 * 1024 * 1024
    incomplete_bytes_per_user_max: int = 16 * 1024 * 1024
    #: Bytes written to clients that do not read.
    unread_bytes_max: int = 64 * 1024 * 1024
    unread_bytes_per_user_max: int = 16 * 1024 * 1024
    #: Bytes of topic filters and their data; 1.6 kB for one of four levels with a wildcard.
    subscription_bytes_max: int = 256 * 1024 * 1024
    subscription_bytes_per_user_max: int = 16 * 1024 * 1024
    #: The user's retained message that was renewed longest ago is evicted.
    retained_messages_per_user_max: int = 10_000
    retained_bytes_per_user_max: int = 8 * 1024 * 1024
