"""Limits of the MQTT listener. Every buffer, queue and table has one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of the listener. The defaults suit phones; sizes are bytes, times seconds."""

    packet_bytes_max: int = 256 * 1024
    #: Before somebody is known, less is believed.
    connect_bytes_max: int = 64 * 1024
    connect_timeout_s: float = 10.0
    connections_max: int = 18_000  # a process may often hold 20,000 files
    #: Connections beyond that which are still listened to, to be told where else to go.
    connections_redirected_max: int = 500
    #: Server Reference (section 4.13.2) of those for whom there is no room here, and of all when
    #: the server stops: HOST or HOST:PORT, several with spaces between.
    other_server: str | None = None
    #: The same for everybody, for good: nobody is served here any more.
    moved_to: str | None = None
    #: MQTT 5 clients that ask for a longer keep-alive, or for none, get this; None: as they like.
    keep_alive_max_s: int | None = None
    #: PUBLISH packets of one connection that wait for the log; MQTT 5's Receive Maximum.
    publishes_in_flight_max: int = 100
    #: The same over all connections of the process.
    all_publishes_in_flight_max: int = 50_000
    all_publish_bytes_in_flight_max: int = 64 * 1024 * 1024
    #: PUBLISH packets of QoS 1 and 2 sent to one client and not acknowledged yet.
    deliveries_in_flight_max: int = 64
    #: What waits for one client, on line or not.
    queued_messages_max: int = 1000
    queued_bytes_max: int = 1024 * 1024
    #: Bytes written and not taken by a slow reader, before QoS 0 is dropped and the rest queued.
    outgoing_bytes_max: int = 256 * 1024
    #: A reader that takes nothing for so long is disconnected.
    stalled_reader_timeout_s: float = 60.0
    #: Sessions kept for clients that are away; the one away longest goes first.
    offline_sessions_max: int = 100_000
    session_expiry_max_s: int = 7 * 24 * 3600
    subscriptions_per_session_max: int = 200
    #: What they are narrowed to, together: a filter that reaches fifty friends counts fifty times.
    granted_filters_per_session_max: int = 1_000
    #: Tell MQTT 5 clients that a subscription is refused for want of rights (0x87) rather than
    #: without a reason (0x80), which is all that MQTT 3 clients, and some of MQTT 5, understand.
    refusals_explained: bool = True
    #: Of all topic filters of one session together: its record in the log has them.
    filter_bytes_per_session_max: int = 256 * 1024
    topic_levels_max: int = 128
    topic_aliases_max: int = 16
    retained_messages_max: int = 200_000
    retained_bytes_max: int = 64 * 1024 * 1024

    # --- what one user may have of what all share ---
    #: Every user has a share of its own: not where everybody is who they say.
    users_share: bool = True
    #: Processes that clients come to; each has its part (gateway.mqtt.listening.options.within_machine).
    workers: int = 1
    connections_per_user_max: int = 5_000
    #: Sessions of clients that are away; the user's own that is away longest goes.
    offline_sessions_per_user_max: int = 1_000
    #: Messages that wait for clients or are on their way to them, and wills.
    held_bytes_max: int = 512 * 1024 * 1024
    held_bytes_per_user_max: int = 20 * 1024 * 1024
    #: Publishes that wait for the log, before no more are read from the user's clients.
    publish_bytes_in_flight_per_user_max: int = 8 * 1024 * 1024
    #: Packets that have not come whole, beyond 4 KiB of each; by address before it is known whose.
    incomplete_bytes_max: int = 64 * 1024 * 1024
    incomplete_bytes_per_user_max: int = 16 * 1024 * 1024
    #: Bytes written for clients that take no more.
    unread_bytes_max: int = 64 * 1024 * 1024
    unread_bytes_per_user_max: int = 16 * 1024 * 1024
    #: Topic filters with what is kept for each; 1.6 kB for one of four levels with a wildcard.
    subscription_bytes_max: int = 256 * 1024 * 1024
    subscription_bytes_per_user_max: int = 16 * 1024 * 1024
    #: The user's own message that was not renewed longest goes.
    retained_messages_per_user_max: int = 10_000
    retained_bytes_per_user_max: int = 8 * 1024 * 1024
