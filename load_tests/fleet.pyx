# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Thousands of MQTT 3.1.1 devices on one epoll loop, on a schedule that does not wait for answers.

Each device has a connection of its own, publishes a fix with QoS 1 at fixed moments and subscribes
to its own address. The schedule is fixed in advance: device i of n sends its k-th fix at (i + k n)
/ rate. Latencies count from that moment, also when the fix is sent late because the platform was
slow or away. Otherwise a stall would show up in one sample instead of in all that it delayed
(coordinated omission).

The content of a fix follows from the number of its device and its sequence number. So nothing is
stored for sending it again after a lost connection, and one bit records that it was acknowledged.
"""

from libc.errno cimport EAGAIN, EINPROGRESS, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, nanosleep, timespec
from posix.unistd cimport close

from load_tests.device cimport (
    CONNECTING,
    DOWN,
    GREETING,
    READY,
    REFUSED,
    SUBSCRIBING,
    Device,
    disconnect,
    has_bit_for,
    is_acknowledged,
    keep_input,
    note_acknowledged,
    send,
    send_waiting,
)
from load_tests.histogram cimport Histogram
from load_tests.linux cimport *
from load_tests.packets cimport (
    PACKET_BYTES_MAX,
    Names,
    Text,
    find_body,
    put_connect,
    put_publish,
    put_subscribe,
    read_time,
)
from load_tests.schedule cimport Schedule, moment, moment_of, sequence_about, time_ms_of

import socket
import time

cdef enum:
    EVENTS_MAX = 512
    PUBLISHES_A_PASS = 512  # limit per pass, before answers are read
    INPUT_BYTES = 65536
    PARTIAL_BYTES_MAX = 32768  # larger incoming packets are a protocol error

    SECOND_NS = 1_000_000_000
    BACKOFF_MIN_NS = 100_000_000
    SWEEP_NS = 20_000_000
    # Calling epoll_wait for each answer would double the cost at 20,000 fixes/s. Latencies are
    # measured too long by at most this.
    PASS_NS_MIN = 500_000
    GREETING_TIMEOUT_S = 20
    LATE_NS = 100_000_000

cdef int64_t BACKOFF_MAX_NS = 5 * <int64_t>SECOND_NS

cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec moment
    clock_gettime(CLOCK_MONOTONIC, &moment)
    return <int64_t>moment.tv_sec * SECOND_NS + moment.tv_nsec


cdef Text text_of(bytes text):
    cdef Text result
    result.start, result.size = text, len(text)
    return result


cdef class Fleet:
    """A fleet of `devices` devices that together send `rate` fixes per second.

    Call `step` repeatedly. `begin` starts the schedule (preferably when `ready == devices`), `end`
    stops it, and `settled` tells whether everything that was due is acknowledged.
    """

    cdef Device* _devices
    cdef readonly int devices
    cdef readonly int first_device
    cdef readonly double rate
    cdef readonly str run
    cdef readonly str user
    cdef int _epoll
    cdef sockaddr_in _server
    cdef int _source_addresses
    cdef uint32_t _window
    cdef int64_t _ack_timeout_ns
    cdef bint _subscribe
    cdef double _connects_per_s
    cdef double _connect_credit
    cdef int64_t _swept
    cdef int64_t _last_pass
    cdef bint _running
    cdef Schedule _schedule
    cdef uint64_t _event  # number of fixes that were due, over all devices
    cdef tuple _texts  # keeps the memory alive that _names points to
    cdef Names _names
    cdef uint16_t _keep_alive_s
    cdef uint8_t* _input
    cdef uint8_t* _output
    cdef Histogram _ack_latencies
    cdef Histogram _push_latencies

    cdef readonly uint64_t sent  # fixes that were sent at least once
    cdef readonly uint64_t acknowledged
    cdef readonly uint64_t resent  # PUBLISH packets with DUP
    cdef readonly uint64_t late  # sent more than 100 ms after they were due
    cdef readonly uint64_t pushes  # fixes whose address was received
    cdef readonly uint64_t push_messages  # all messages on address topics
    cdef readonly uint64_t push_bytes
    cdef readonly uint64_t connects
    cdef readonly uint64_t connect_failures
    cdef readonly uint64_t disconnects
    cdef readonly uint64_t protocol_errors
    cdef readonly int ready  # devices that may publish now
    cdef readonly int refused  # devices whose password was rejected
    cdef readonly int last_errno

    def __cinit__(self):
        self._epoll = -1
        self._ack_latencies = Histogram()
        self._push_latencies = Histogram()

    def __init__(
        self,
        str host,
        int port,
        *,
        int devices,
        double rate,
        str run,
        int first_device=0,
        str user="load",
        password=None,
        int source_addresses=8,
        int window=16,
        double ack_timeout_s=30.0,
        double connects_per_s=4000.0,
        bint subscribe=True,
    ):
        """Prepare the devices; `run` (6 to 16 letters or digits) makes this run's ids unique."""
        cdef int index
        if devices < 1 or not 0 < rate <= 10_000_000 or not 1 <= window <= 1000:
            raise ValueError("devices, rate and window must be positive and sensible")
        if not (run.isalnum() and run.isascii() and 6 <= len(run) <= 16):
            raise ValueError("run must be 6 to 16 letters or digits")
        if first_device < 0 or first_device + devices > 100_000_000:
            raise ValueError("devices are numbered below 100,000,000")
        self.devices = devices
        self.first_device = first_device
        self.rate = rate
        self.run = run
        self.user = user
        self._window = window
        self._subscribe = subscribe
        self._ack_timeout_ns = <int64_t>(ack_timeout_s * SECOND_NS)
        self._connects_per_s = connects_per_s
        self._schedule.devices = devices
        self._schedule.gap_ns = SECOND_NS / rate
        self._keep_alive_s = <uint16_t>min(65535.0, max(600.0, 2 * devices / rate))
        self._texts = (
            f"devices/{user}/d".encode(),
            f"{run}-".encode(),
            user.encode(),
            b"" if password is None else password.encode(),
        )
        if max(map(len, self._texts)) > 300:
            raise ValueError("user and password may have 280 bytes")
        self._names.topic_head = text_of(self._texts[0])
        self._names.id_head = text_of(self._texts[1])
        self._names.user = text_of(self._texts[2])
        self._names.password = text_of(self._texts[3])
        address = socket.inet_aton(socket.gethostbyname(host))
        memset(&self._server, 0, sizeof(self._server))
        self._server.sin_family = AF_INET
        self._server.sin_port = htons(port)
        memcpy(&self._server.sin_addr, <const char*>address, 4)
        # From one address to one port, only 28,000 connections are possible.
        self._source_addresses = min(source_addresses, 250) if address[0] == 127 else 0
        self._devices = <Device*>calloc(devices, sizeof(Device))
        self._input = <uint8_t*>malloc(INPUT_BYTES)
        self._output = <uint8_t*>malloc(<size_t>window * PACKET_BYTES_MAX)
        if self._devices is NULL or self._input is NULL or self._output is NULL:
            raise MemoryError
        for index in range(devices):
            self._devices[index].fd = -1
            self._devices[index].backoff = BACKOFF_MIN_NS
        self._epoll = epoll_create1(0)
        if self._epoll < 0:
            raise OSError(errno, "epoll_create1")

    def __dealloc__(self):
        cdef int index
        if self._devices is not NULL:
            for index in range(self.devices):
                if self._devices[index].fd >= 0:
                    close(self._devices[index].fd)
                free(self._devices[index].input)
                free(self._devices[index].output)
                free(self._devices[index].acknowledged)
        if self._epoll >= 0:
            close(self._epoll)
        free(self._devices)
        free(self._input)
        free(self._output)

    def device_name(self, int index):
        """Return the name of the index-th device of this fleet, without its user."""
        return f"d{self.first_device + index:08d}"

    def begin(self):
        """Start the schedule; return its first moment (s since 1970)."""
        self._schedule.start_ns = now_ns()
        self._schedule.start_wall_ms = time.time_ns() // 1_000_000
        self._event = 0
        self._running = True
        return self._schedule.start_wall_ms / 1000.0

    def end(self):
        """Stop the schedule; fixes that are due already are still sent."""
        self._running = False

    @property
    def due(self):
        """The number of fixes that were due."""
        return self._event

    @property
    def settled(self):
        """Return whether everything that was due is acknowledged."""
        return self.acknowledged == self._event

    def step(self, int wait_ms=20):
        """Publish due fixes and read answers for about `wait_ms`, without the GIL."""
        cdef int64_t until = now_ns() + <int64_t>wait_ms * 1_000_000
        with nogil:
            self._pass(until)
            while now_ns() < until:
                self._pass(until)

    def close(self):
        """Disconnect all devices."""
        cdef int index
        cdef Device* device
        for index in range(self.devices):
            device = &self._devices[index]
            if device.state >= GREETING and device.fd >= 0:
                send_(device.fd, <const char*>b"\xe0\x00", 2, MSG_NOSIGNAL)
            self._hang_up(device, now_ns())
            device.state = REFUSED  # prevents a new connection

    def take_acknowledgement_latencies(self):
        """Return (microseconds, count) pairs since the last call."""
        return self._ack_latencies.take()

    def take_push_latencies(self):
        """Return (microseconds, count) pairs since the last call."""
        return self._push_latencies.take()

    def accounts(self):
        """Yield (device number, fixes sent, bit map of the acknowledged ones) for each device."""
        cdef int index
        cdef Device* device
        for index in range(self.devices):
            device = &self._devices[index]
            yield (
                self.first_device + index,
                device.next,
                <bytes>(<char*>device.acknowledged)[: (device.next + 7) // 8]
                if device.acknowledged is not NULL
                else bytes((device.next + 7) // 8),
            )

    # ---- the loop; everything below runs without the GIL ----

    cdef void _pass(self, int64_t until) noexcept nogil:
        cdef epoll_event events[EVENTS_MAX]
        cdef int64_t now = now_ns(), wait_ns
        cdef int count, number, published = 0
        cdef timespec pause
        if now - self._last_pass < PASS_NS_MIN:
            pause.tv_sec, pause.tv_nsec = 0, PASS_NS_MIN - (now - self._last_pass)
            nanosleep(&pause, NULL)
            now = now_ns()
        self._last_pass = now
        if now - self._swept >= SWEEP_NS:
            self._sweep(now)
        while (
            self._running
            and published < PUBLISHES_A_PASS
            and moment(&self._schedule, self._event) <= now
        ):
            self._come_due(now)
            published += 1
        wait_ns = until - now
        if self._running:
            wait_ns = min(wait_ns, moment(&self._schedule, self._event) - now)
        wait_ns = min(wait_ns, SWEEP_NS)
        # Rounded up to a whole millisecond: fixes are sent at most that much late, several per
        # wake-up.
        count = epoll_wait(
            self._epoll, events, EVENTS_MAX, 0 if wait_ns <= 0 else <int>((wait_ns + 999_999) // 1_000_000)
        )
        for number in range(count):
            self._serve(events[number].data.u32, events[number].events)

    cdef void _come_due(self, int64_t now) noexcept nogil:
        cdef uint32_t index = self._event % self.devices
        cdef Device* device = &self._devices[index]
        self._event += 1
        device.due += 1
        if device.state == READY:
            self._publish(index, device, now)

    cdef void _publish(self, uint32_t index, Device* device, int64_t now) noexcept nogil:
        """Send due fixes in one write, as many as the window allows."""
        cdef uint8_t* out = self._output
        cdef uint32_t sequence
        while device.next < device.due and device.in_flight < self._window:
            sequence = device.next
            if not has_bit_for(device, sequence):
                break
            out = self._put_publish(out, index, sequence, False)
            device.next += 1
            device.in_flight += 1
            self.sent += 1
            if now - moment_of(&self._schedule, index, sequence) > LATE_NS:
                self.late += 1
        if out != self._output:
            if device.in_flight == <uint32_t>1:
                device.deadline = now + self._ack_timeout_ns
            self._write(device, self._output, out - self._output, now)

    cdef void _publish_again(self, uint32_t index, Device* device, int64_t now) noexcept nogil:
        """Send all unacknowledged fixes of the old connection again on the new one."""
        cdef uint8_t* out = self._output
        cdef uint32_t sequence
        for sequence in range(device.floor, device.next):
            if not is_acknowledged(device, sequence):
                out = self._put_publish(out, index, sequence, True)
                device.in_flight += 1
                self.resent += 1
        if out != self._output:
            self._write(device, self._output, out - self._output, now)

    cdef inline uint8_t* _put_publish(
        self, uint8_t* out, uint32_t index, uint32_t sequence, bint again
    ) noexcept nogil:
        return put_publish(
            out, &self._names, self.first_device + index, sequence,
            time_ms_of(&self._schedule, index, sequence), again,
        )

    cdef void _sweep(self, int64_t now) noexcept nogil:
        """Connect devices that are down, and close connections whose deadline has passed."""
        cdef int index
        cdef Device* device
        cdef double elapsed_s = (now - self._swept) / <double>SECOND_NS
        self._connect_credit = min(
            self._connects_per_s, self._connect_credit + min(elapsed_s, 0.1) * self._connects_per_s
        )
        self._swept = now
        for index in range(self.devices):
            device = &self._devices[index]
            if device.state == READY and device.in_flight == 0:
                continue
            if device.state == REFUSED or now < device.deadline:
                continue
            if device.state != DOWN:
                self._lose(device, now)
            elif self._connect_credit >= 1:
                self._connect_credit -= 1
                self._connect(index, device, now)

    cdef void _connect(self, uint32_t index, Device* device, int64_t now) noexcept nogil:
        cdef sockaddr_in source
        cdef epoll_event interest
        cdef int one = 1
        cdef int fd = socket_(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
        if fd < 0:
            self.connect_failures += 1
            self.last_errno = errno
            device.deadline = now + SECOND_NS
            return
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))
        if self._source_addresses > 1:
            memset(&source, 0, sizeof(source))
            source.sin_family = AF_INET
            source.sin_addr.s_addr = htonl(0x7F000001 + index % self._source_addresses)
            # connect() chooses the port, because it knows the destination.
            setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one))
            bind(fd, <const sockaddr*>&source, sizeof(source))
        device.fd = fd
        device.state = CONNECTING
        device.deadline = now + <int64_t>GREETING_TIMEOUT_S * SECOND_NS
        self.connects += 1
        if connect_(fd, <const sockaddr*>&self._server, sizeof(self._server)) < 0 and errno != EINPROGRESS:
            self.last_errno = errno
            self._lose(device, now)
            return
        # Edge-triggered, registered once: waiting output needs no change of the registration.
        interest.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET
        interest.data.u32 = index
        epoll_ctl(self._epoll, EPOLL_CTL_ADD, fd, &interest)

    cdef void _lose(self, Device* device, int64_t now) noexcept nogil:
        """Close a failed connection; the delay before the next attempt grows each time."""
        if device.state == READY:
            self.disconnects += 1
        else:
            self.connect_failures += 1
        self._hang_up(device, now)

    cdef void _hang_up(self, Device* device, int64_t now) noexcept nogil:
        if device.state == READY:
            self.ready -= 1
        disconnect(device)
        device.deadline = now + device.backoff
        device.backoff = min(BACKOFF_MAX_NS, 2 * device.backoff)

    cdef void _serve(self, uint32_t index, uint32_t events) noexcept nogil:
        cdef Device* device = &self._devices[index]
        cdef int64_t now = now_ns()
        cdef uint8_t* end
        cdef int error = 0
        cdef socklen_t size = sizeof(error)
        if device.fd < 0:
            return
        if events & (EPOLLERR | EPOLLHUP):
            getsockopt(device.fd, SOL_SOCKET, SO_ERROR, &error, &size)
            self.last_errno = error
            self._lose(device, now)
            return
        if device.state == CONNECTING:
            if not events & EPOLLOUT:
                return
            device.state = GREETING
            end = put_connect(
                self._output, &self._names, self.first_device + index, self._keep_alive_s
            )
            self._write(device, self._output, end - self._output, now)
        elif device.output_size and events & EPOLLOUT:
            self._check(device, send_waiting(device), now)
        if device.fd >= 0 and events & (EPOLLIN | EPOLLRDHUP):
            self._read(index, device, now)

    cdef void _write(
        self, Device* device, const uint8_t* data, Py_ssize_t size, int64_t now
    ) noexcept nogil:
        self._check(device, send(device, data, size), now)

    cdef void _check(self, Device* device, int error, int64_t now) noexcept nogil:
        """Close a connection on which sending has failed."""
        if error:
            self.last_errno = error
            self._lose(device, now)

    cdef void _read(self, uint32_t index, Device* device, int64_t now) noexcept nogil:
        cdef ssize_t size, room
        cdef Py_ssize_t filled, used
        while True:
            filled = device.input_size
            if filled:
                memcpy(self._input, device.input, filled)
            room = INPUT_BYTES - filled
            size = recv_(device.fd, self._input + filled, room, 0)
            if size <= 0:
                if size < 0 and (errno == EAGAIN or errno == EINTR):
                    return
                self.last_errno = errno if size < 0 else 0
                self._lose(device, now)
                return
            used = self._packets(index, device, filled + size, now)
            if device.fd < 0:
                return
            if used < 0 or filled + size - used > PARTIAL_BYTES_MAX:
                self.protocol_errors += 1
                self._lose(device, now)
                return
            keep_input(device, self._input + used, filled + size - used)
            if size < room:
                return  # drained: more data raises the next edge

    cdef Py_ssize_t _packets(
        self, uint32_t index, Device* device, Py_ssize_t size, int64_t now
    ) noexcept nogil:
        """Handle all complete packets of the input; return the bytes used, or -1."""
        cdef const uint8_t* data = self._input
        cdef Py_ssize_t position = 0, body, length
        cdef uint32_t acknowledged_before = device.in_flight
        while position + 2 <= size:
            body = find_body(data, position, size, &length)
            if body < 0:
                return -1
            if not body:
                break
            if not self._packet(index, device, data[position], data + body, length, now):
                return -1 if device.fd >= 0 else 0
            if device.fd < 0:
                return 0
            position = body + length
        if device.in_flight < acknowledged_before and device.next < device.due:
            self._publish(index, device, now)
        return position

    cdef bint _packet(
        self, uint32_t index, Device* device, uint8_t first, const uint8_t* body, Py_ssize_t size,
        int64_t now,
    ) noexcept nogil:
        """Handle one packet; return False if the server may not send it now."""
        cdef int kind = first >> 4
        cdef uint8_t* end
        if kind == 4 and device.state == READY:  # PUBACK
            if size < 2:
                return False
            self._acknowledge(index, device, (<uint16_t>body[0] << 8) | body[1], now)
            return True
        if kind == 3 and device.state >= SUBSCRIBING:
            return self._pushed(index, device, first, body, size, now)
        if kind == 2 and device.state == GREETING:  # CONNACK
            if size < 2:
                return False
            if body[1]:
                if body[1] == 3:  # server unavailable
                    self._lose(device, now)
                else:
                    self._hang_up(device, now)
                    device.state = REFUSED
                    self.refused += 1
                return True
            device.state = SUBSCRIBING
            if self._subscribe:
                end = put_subscribe(self._output, &self._names, self.first_device + index)
                self._write(device, self._output, end - self._output, now)
                return True
            return self._be_ready(index, device, now)
        if kind == 9 and device.state == SUBSCRIBING:
            return self._be_ready(index, device, now)
        return kind == 13  # PINGRESP

    cdef bint _be_ready(self, uint32_t index, Device* device, int64_t now) noexcept nogil:
        device.state = READY
        device.deadline = now + self._ack_timeout_ns
        self.ready += 1
        self._publish_again(index, device, now)
        if device.fd >= 0:
            self._publish(index, device, now)
        return True

    cdef void _acknowledge(
        self, uint32_t index, Device* device, uint16_t packet_id, int64_t now
    ) noexcept nogil:
        # Find the only fix in the window with this identifier.
        cdef uint32_t ahead = (packet_id + 65534 - device.floor % 65535) % 65535
        cdef uint32_t sequence = device.floor + ahead
        if sequence >= device.next:
            return  # it was acknowledged before; this answers a repetition
        if is_acknowledged(device, sequence):
            return
        if ahead == 0:
            # The deadline is that of the oldest fix: acknowledgements of later ones do not extend
            # it.
            device.deadline = now + self._ack_timeout_ns
        note_acknowledged(device, sequence)
        # Reset only now: a gateway that accepts connections and drops them must not get ten a
        # second.
        device.backoff = BACKOFF_MIN_NS
        self.acknowledged += 1
        self._ack_latencies.count(now - moment_of(&self._schedule, index, sequence))

    cdef bint _pushed(
        self, uint32_t index, Device* device, uint8_t first, const uint8_t* body, Py_ssize_t size,
        int64_t now,
    ) noexcept nogil:
        """Handle a message on the device's address topic: find its fix by the time."""
        cdef uint8_t answer[4]
        cdef Py_ssize_t position, topic
        cdef int64_t time_ms, guess
        cdef uint32_t sequence
        if size < 2:
            return False
        topic = (<Py_ssize_t>body[0] << 8) | body[1]
        position = 2 + topic
        if first & 6:
            if position + 2 > size:
                return False
            answer[0], answer[1], answer[2], answer[3] = 0x40, 2, body[position], body[position + 1]
            self._write(device, answer, 4, now)
            position += 2
            if device.fd < 0:
                return True
        if position > size:
            return False
        self.push_messages += 1
        self.push_bytes += size - position
        time_ms = read_time(body, position, size)
        guess = sequence_about(&self._schedule, index, time_ms)
        for sequence in range(max(0, guess - 1), max(0, min(guess + 2, <int64_t>device.next))):
            if (
                sequence >= device.pushed
                and time_ms_of(&self._schedule, index, sequence) == time_ms
            ):
                device.pushed = sequence + 1
                self.pushes += 1
                self._push_latencies.count(now - moment_of(&self._schedule, index, sequence))
                break
        return True
