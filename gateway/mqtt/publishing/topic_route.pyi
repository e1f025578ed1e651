from gateway.fixes.fix_route import FORM_OTHER, FixRoute
from gateway.mqtt.interfaces import Parse
from gateway.mqtt.publishing.mapping import TopicRule

class TopicRoute(FixRoute):
    """The route of messages that one client publishes to one topic."""

    topic: str
    allowed: bool
    parse: Parse | None
    rule: TopicRule | None
    for_one_message: bool
    def __init__(
        self,
        topic: str,
        allowed: bool,
        parse: Parse | None,
        device: str | None = None,
        form: int = FORM_OTHER,
        rule: TopicRule | None = None,
        metered: bool = False,
        for_one_message: bool = False,
    ) -> None: ...
    @property
    def user(self) -> str: ...
    @property
    def device(self) -> str: ...
