"""Constants of the path of every message."""

cdef enum:
    STATE_AWAITING_CONNECT = 0
    STATE_AUTHENTICATING = 1
    STATE_CONNECTED = 2
    STATE_CLOSED = 3
    STATE_CHALLENGED = 4  # CONNECT has arrived, an AUTH is expected


cdef enum:
    NOT_STORED = 0x100   # in place of a reason code: no answer is sent
    # Estimated size of a message's objects, for each client that receives it.
    DELIVERY_BYTES = 200
    ALIAS_BYTES_MAX = 16 * 1024  # of the topics behind a connection's topic aliases
    # Queued messages that one client is sent in a turn of the loop, as others wait, too.
    STEPS_A_TURN = 256
    STEPS_UNBOUNDED = 0x7FFFFFFF  # until a shell sets a limit
    SPREAD_FROM = 32  # up to so many subscribers get a message within one turn
    SPREAD_A_STEP = 32
    MERGED_A_STEP = 1_000
    SPREAD_BYTES_MAX = 16 * 1024 * 1024  # of messages that wait for earlier ones of their topics
    LOOK_BYTES = 512  # payload that costs as much as one packet
    STEPS_A_SEARCH = 16  # cost of a pause in a search for retained messages
    RELEASES_MAX = 1000  # unreleased QoS 2 publishes; MQTT 3 clients know no Receive Maximum
