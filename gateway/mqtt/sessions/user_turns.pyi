from gateway.mqtt.sessions.link import Link

class UserTurn:
    """What the clients of one user have had of the present turn, and those that wait for more."""

    held: set[Link]

class UserTurns:
    """The present turn of the loop, and the users whose clients wait for the next ones."""
