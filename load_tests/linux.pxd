"""The parts of Linux's API that the fleet uses: epoll and TCP sockets."""

from libc.stdint cimport uint16_t, uint32_t

cdef extern from "<sys/epoll.h>" nogil:
    enum: EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP, EPOLL_CTL_ADD
    # 1 << 31 does not fit the signed constant of an enum.
    const uint32_t EPOLLET
    ctypedef union epoll_data_t:
        uint32_t u32
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int events_max, int timeout_ms)

cdef extern from "<sys/socket.h>" nogil:
    enum: AF_INET, SOCK_STREAM, SOCK_NONBLOCK, SOCK_CLOEXEC, MSG_NOSIGNAL, SOL_SOCKET, SO_ERROR
    struct sockaddr:
        pass
    ctypedef uint32_t socklen_t
    int socket_ "socket"(int domain, int kind, int protocol)
    int bind(int fd, const sockaddr* address, socklen_t size)
    int connect_ "connect"(int fd, const sockaddr* address, socklen_t size)
    int setsockopt(int fd, int level, int name, const void* value, socklen_t size)
    int getsockopt(int fd, int level, int name, void* value, socklen_t* size)
    ssize_t send_ "send"(int fd, const void* data, size_t size, int flags)
    ssize_t recv_ "recv"(int fd, void* data, size_t size, int flags)

cdef extern from "<netinet/in.h>" nogil:
    enum: IPPROTO_IP, IPPROTO_TCP, IP_BIND_ADDRESS_NO_PORT
    struct in_addr:
        uint32_t s_addr
    struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    uint16_t htons(uint16_t value)
    uint32_t htonl(uint32_t value)

cdef extern from "<netinet/tcp.h>" nogil:
    enum: TCP_NODELAY
