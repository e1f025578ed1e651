"""What becomes of messages that one client publishes to one topic."""

from gateway.fixes.fix_route cimport FORM_OTHER, FixRoute


cdef class TopicRoute(FixRoute):
    """The way of messages that one client publishes to one topic.

    `device` is the device's name as it is stored, if it is known already; `parse` None means that
    nothing is for the log. Messages that are `metered` are for the complete reader, which has them
    counted.
    """

    def __init__(
        self, str topic, bint allowed, parse, str device=None, int form=FORM_OTHER, rule=None,
        bint metered=False,
    ):
        FixRoute.__init__(self, None if metered or not allowed else device, form)
        self.topic = topic
        self.allowed = allowed
        self.parse = parse
        #: A gateway.mqtt.publishing.mapping.TopicRule that says which topic of the log is meant.
        self.rule = rule
        self._named = device if rule is not None else None

    @property
    def user(self):
        """The user that the topic, or the rule for it, names."""
        return self.topic.split("/")[1] if self._named is None else self._named.split("/")[0]

    @property
    def device(self):
        """The device that the topic, or the rule for it, names."""
        return self.topic.split("/")[2] if self._named is None else self._named.split("/")[1]
