from gateway.mqtt.sessions.link import Link

class UserTurn:
    """What the clients of one user have had of the present turn of the loop."""

    held: set[Link]

class UserQueues:
    """A queue of each user. They are served one after the other; None stands for all others."""

    def __bool__(self) -> bool: ...
    def push(self, user: UserTurn | None, item: object) -> None: ...
