"""Netlink questions to the kernel: who owns a TCP socket, and whether an address is our own.

sock_diag(7), linux/inet_diag.h and rtnetlink(7). Each question is one message. The kernel answers
within the system call that sends it, so the answer is there when `send` returns.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import dataclass
from typing import Final

from waylog.network.local_peers.connection_ends import (
    ESTABLISHED,
    FIN_WAIT_1,
    FIN_WAIT_2,
    ConnectionEnds,
    unmapped,
)

_NETLINK_ROUTE: Final = 0
_NETLINK_SOCK_DIAG: Final = 4

_NLMSG_ERROR: Final = 2
_NLM_F_REQUEST: Final = 1
_SOCK_DIAG_BY_FAMILY: Final = 20
_RTM_NEWROUTE: Final = 24
_RTM_GETROUTE: Final = 26
_RTA_DST: Final = 1
_RTN_LOCAL: Final = 2

#: length, type, flags, sequence number, port (nlmsghdr)
_HEADER: Final = struct.Struct("=IHHII")
_ERROR: Final = struct.Struct("=i")
#: family, protocol, extensions, padding, states (inet_diag_req_v2)
_QUESTION: Final = struct.Struct("=BBBxI")
#: source port, destination port, source, destination (inet_diag_sockid)
_ENDS: Final = struct.Struct(">HH16s16s")
#: interface, cookie (also inet_diag_sockid)
_INTERFACE: Final = struct.Struct("=III")
#: family, state, timer, retransmissions (inet_diag_msg); the ends and the interface follow
_ANSWER: Final = struct.Struct("=BBBB")
#: expires, bytes to read, bytes to send, uid, inode (also inet_diag_msg)
_OWNER: Final = struct.Struct("=IIIII")
#: family, destination and source length, tos, table, protocol, scope, type, flags (rtmsg)
_ROUTE: Final = struct.Struct("=BBBBBBBBI")
#: length, type (rtattr)
_ATTRIBUTE: Final = struct.Struct("=HH")

#: A socket that its process has shut down for writing waits for the other end's answer.
_OPEN_STATES: Final = frozenset((ESTABLISHED, FIN_WAIT_1, FIN_WAIT_2))
_ANY_STATE: Final = 2**32 - 1
_NO_COOKIE: Final = 2**32 - 1
_ANSWER_BYTES_MAX: Final = 8192
#: The most answers that are skipped because they belong to an earlier question.
_STRAYS_MAX: Final = 8


class MalformedAnswerError(ValueError):
    """The received message is not an answer to the question."""


@dataclass(frozen=True, slots=True)
class SocketOwner:
    """The state and owner of a socket. A socket that no process holds any more has inode 0.

    The uid of such a socket, or of one in TIME_WAIT, says nothing: it may be 0.
    """

    state: int
    uid: int
    inode: int

    @property
    def is_told(self) -> bool:
        """True if the uid is that of a process which has the socket open, at least for reading."""
        return self.inode != 0 and self.state in _OPEN_STATES


def encode_owner_question(ends: ConnectionEnds, sequence: int) -> bytes:
    """Encode the question for the peer's socket, by its addresses and ports."""
    body = (
        _QUESTION.pack(ends.family, socket.IPPROTO_TCP, 0, _ANY_STATE)
        + _ENDS.pack(ends.peer_port, ends.own_port, ends.peer, ends.own)
        + _INTERFACE.pack(ends.scope, _NO_COOKIE, _NO_COOKIE)
    )
    return _message(_SOCK_DIAG_BY_FAMILY, sequence, body)


def decode_owner(answer: bytes, ends: ConnectionEnds, sequence: int) -> SocketOwner | None:
    """Decode the peer's socket; return None if the kernel does not know it.

    If no socket has both addresses, the kernel answers with a socket that listens at the peer's
    port, which is not the peer's. Raises OSError, MalformedAnswerError.
    """
    kind, body = _body(answer, sequence)
    if kind != _SOCK_DIAG_BY_FAMILY or len(body) < _ANSWER.size + 48 + _OWNER.size:
        raise MalformedAnswerError(f"type {kind} with {len(body)} bytes")
    family, state, _, _ = _ANSWER.unpack_from(body)
    peer_port, own_port, peer, own = _ENDS.unpack_from(body, _ANSWER.size)
    _, _, _, uid, inode = _OWNER.unpack_from(body, _ANSWER.size + 48)
    if family == socket.AF_INET:
        peer, own = peer[:4], own[:4]
    elif family != socket.AF_INET6:
        raise MalformedAnswerError(f"family {family}")
    found = (unmapped(peer), peer_port, unmapped(own), own_port)
    if found != (ends.peer, ends.peer_port, ends.own, ends.own_port):
        return None
    return SocketOwner(state, uid, inode)


def encode_route_question(address: bytes, sequence: int) -> bytes:
    """Encode the question how the kernel reaches an address."""
    family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
    body = _ROUTE.pack(family, 8 * len(address), 0, 0, 0, 0, 0, 0, 0)
    body += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(address), _RTA_DST) + address
    return _message(_RTM_GETROUTE, sequence, body)


def decode_is_own(answer: bytes, sequence: int) -> bool:
    """Return whether the address is one of this machine's; raises OSError, MalformedAnswerError."""
    kind, body = _body(answer, sequence)
    if kind != _RTM_NEWROUTE or len(body) < _ROUTE.size:
        raise MalformedAnswerError(f"type {kind} with {len(body)} bytes")
    return bool(_ROUTE.unpack_from(body)[7] == _RTN_LOCAL)


def _message(kind: int, sequence: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, _NLM_F_REQUEST, sequence, 0) + body


def _body(answer: bytes, sequence: int) -> tuple[int, bytes]:
    """Return the type and body of a message; raises OSError for an error message."""
    if len(answer) < _HEADER.size:
        raise MalformedAnswerError(f"{len(answer)} bytes")
    length, kind, _, answered, _ = _HEADER.unpack_from(answer)
    if answered != sequence or not _HEADER.size <= length <= len(answer):
        raise MalformedAnswerError(f"number {answered}, length {length} of {len(answer)}")
    body = answer[_HEADER.size : length]
    if kind == _NLMSG_ERROR:
        if len(body) < _ERROR.size:
            raise MalformedAnswerError("an error without a number")
        number = -_ERROR.unpack_from(body)[0]
        raise OSError(number, os.strerror(number))
    return kind, body


class _Conversation:
    """A netlink socket, on which one question is asked at a time."""

    def __init__(self, protocol: int) -> None:
        """Open the socket; raises OSError."""
        if not hasattr(socket, "AF_NETLINK"):
            raise OSError(errno.EAFNOSUPPORT, "only Linux has netlink")
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._socket.setblocking(False)
        self.sequence = 0

    def ask(self, question: bytes) -> bytes:
        """Send a question and return its answer; raises OSError."""
        self._socket.send(question)
        for _ in range(_STRAYS_MAX):
            answer, (port, _) = self._socket.recvfrom(_ANSWER_BYTES_MAX)
            # Port 0 is the kernel's: other processes can send messages to this socket, too.
            if port == 0 and answer[8:12] == question[8:12]:
                return answer
        raise OSError(errno.EBADMSG, "answers to other questions")

    def next_sequence(self) -> int:
        """Return a new sequence number, which the answer has to repeat."""
        self.sequence = (self.sequence + 1) % 2**32
        return self.sequence

    def close(self) -> None:
        """Close the netlink socket."""
        self._socket.close()


class SocketDiagnosis:
    """Asks the kernel who owns a socket, in constant time."""

    def __init__(self) -> None:
        """Raises OSError if the kernel does not offer such a socket."""
        self._conversation = _Conversation(_NETLINK_SOCK_DIAG)

    def peer_of(self, ends: ConnectionEnds) -> SocketOwner | None:
        """Return the peer's socket, None if there is none; raises OSError, MalformedAnswerError."""
        sequence = self._conversation.next_sequence()
        try:
            answer = self._conversation.ask(encode_owner_question(ends, sequence))
            return decode_owner(answer, ends, sequence)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise

    def close(self) -> None:
        """Close the netlink socket."""
        self._conversation.close()


class Routes:
    """Asks the kernel whether an address is one of this machine's."""

    def __init__(self) -> None:
        """Raises OSError if the kernel does not offer such a socket."""
        self._conversation = _Conversation(_NETLINK_ROUTE)

    def is_own(self, address: bytes) -> bool:
        """Return whether the address is this machine's; raises OSError, MalformedAnswerError."""
        sequence = self._conversation.next_sequence()
        try:
            answer = self._conversation.ask(encode_route_question(address, sequence))
            return decode_is_own(answer, sequence)
        except OSError as error:
            # Without a route to the address, it is certainly not this machine's.
            if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
                return False
            raise

    def close(self) -> None:
        """Close the netlink socket."""
        self._conversation.close()
