"""The route of messages that one client publishes to one topic."""

from gateway.fixes.fix_route cimport FORM_OTHER, FixRoute


cdef class TopicRoute(FixRoute):
    """The route of messages that one client publishes to one topic.

    `device` is the device's name as stored, if it is known already. `parse` None means that the
    messages are not for the log. `metered` messages need the complete parser, where they are
    counted. A route `for_one_message` is looked up again for the next one.
    """

    def __init__(
        self, str topic, bint allowed, parse, str device=None, int form=FORM_OTHER, rule=None,
        bint metered=False, bint for_one_message=False,
    ):
        FixRoute.__init__(self, None if metered or not allowed else device, form)
        self.topic = topic
        self.allowed = allowed
        self.parse = parse
        #: A gateway.mqtt.publishing.mapping.TopicRule that says which topic of the log is meant.
        self.rule = rule
        self.for_one_message = for_one_message
        self._named = device if rule is not None else None

    @property
    def user(self):
        """The user that the topic, or its rule, names."""
        return self.topic.split("/")[1] if self._named is None else self._named.split("/")[0]

    @property
    def device(self):
        """The device that the topic, or its rule, names."""
        return self.topic.split("/")[2] if self._named is None else self._named.split("/")[1]
