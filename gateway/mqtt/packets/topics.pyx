"""Topic filters and the subscriptions that match a topic (MQTT 5.0, section 4.7)."""

SHARE_PREFIX = "$share/"

#: The key for interest in all topics (gateway.mqtt.workers.interest).
EVERYTHING = "#"


def filter_is_valid(str topic_filter, int levels_max):
    """Return whether wildcards are in valid places, and there are not too many levels."""
    levels = topic_filter.split("/")
    if not topic_filter or len(levels) > levels_max:
        return False
    for index, level in enumerate(levels):
        if "#" in level and (level != "#" or index != len(levels) - 1):
            return False
        if "+" in level and level != "+":
            return False
    return True


def has_wildcard(str topic_filter):
    """Return whether a valid filter can match more than one topic."""
    return "+" in topic_filter or "#" in topic_filter


def matches(str topic_filter, str topic):
    """Return whether a valid filter matches a topic name."""
    return _matches(topic_filter, topic)


def first_match(str topic_filter, list topics, Py_ssize_t start, Py_ssize_t end):
    """Return the index of the first topic from `start` to `end` that a valid filter matches.

    It is -1 if there is none. A topic takes some 50 ns.
    """
    cdef Py_ssize_t index
    for index in range(max(start, 0), min(end, len(topics))):
        if _matches(topic_filter, <str?> topics[index]):
            return index
    return -1


cdef bint _matches(str topic_filter, str topic) except -1:
    cdef Py_ssize_t i = 0, j = 0, filter_end = len(topic_filter), end = len(topic)
    cdef Py_UCS4 wanted
    # Section 4.7.2: a wildcard at the first level does not match topics that begin with $.
    if end and topic[0] == u"$" and filter_end and topic_filter[0] in u"+#":
        return False
    while i < filter_end:
        wanted = topic_filter[i]
        if wanted == u"#":
            return True
        if wanted == u"+":
            while j < end and topic[j] != u"/":
                j += 1
        elif j < end and topic[j] == wanted:
            j += 1
        else:
            # "a/#" matches "a" too.
            return j == end and i + 2 == filter_end and wanted == u"/" and topic_filter[i + 1] == u"#"
        i += 1
    return j == end


def split_share(str topic_filter):
    """Return share name and filter of `$share/NAME/FILTER`; the name is None for other filters.

    If the share name is not valid, the filter that is returned is empty.
    """
    if not topic_filter.startswith(SHARE_PREFIX):
        return None, topic_filter
    name, _, inner = topic_filter.removeprefix(SHARE_PREFIX).partition("/")
    if not name or "+" in name or "#" in name:
        return name, ""
    return name, inner


cdef class Subscription:
    """One topic filter of one session, as requested and as granted."""

    def __init__(
        self, session, str topic_filter, tuple granted_filters, *, int qos=0, bint no_local=False,
        bint retain_as_published=False, long long identifier=0, str share=None,
    ):
        self.session = session
        self.topic_filter = topic_filter
        #: The filters to which `topic_filter` is narrowed: they match only what may be read.
        self.granted_filters = granted_filters
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifier = identifier  # 0 = none
        self.share = share
        self.elsewhere = False  # whether it stands for subscribers at another worker
        #: True if it may match messages of friends: `Hub.told` is called for each message.
        self.reaches_friends = False
        #: True if the session's backlog holds stored retained messages, all of which are to be
        #: sent again if the session resumes elsewhere.
        self.awaits_retained = False


cdef class SharedGroup:
    """The subscriptions of one share name and filter: each message goes to one of them."""

    def __init__(self):
        self.members = {}

    def choose(self, bint here=False):
        """Return the next member in turn; members with connected clients come first.

        With `here`, only members of this worker count; None if there are none.
        """
        chosen = None
        for subscription in self.members:
            if here and subscription.elsewhere:
                continue
            if chosen is None or subscription.session.connection is not None:
                chosen = subscription
                if subscription.session.connection is not None:
                    break
        subscription = chosen
        if subscription is None:
            return None
        # Round robin: the chosen member goes to the end.
        del self.members[subscription]
        self.members[subscription] = None
        return subscription


cdef class _Node:
    """A level of the wildcard trie."""

    cdef readonly dict children
    cdef readonly dict here   # filters that end at this level
    cdef readonly dict below  # filters that go on with `#`

    def __init__(self):
        self.children = {}
        self.here = {}
        self.below = {}


cdef class SubscriptionTree:
    """All subscriptions, found by topic.

    Most clients subscribe to exactly one topic, their own. So filters without a wildcard are in one
    dictionary, and a topic with a single subscriber needs no container. Only filters with a
    wildcard require a walk through the trie.
    """

    def __init__(self):
        self._exact = {}
        self._root = _Node()
        self._wildcards = 0
        self._groups = {}

    def __len__(self):
        """Return a measure of the memory held for filters: 0 when there are none."""
        return len(self._exact) + self._wildcards + len((<_Node> self._root).children)

    def add(self, Subscription subscription):
        """Add a subscription under all its granted filters."""
        for topic_filter in subscription.granted_filters:
            if subscription.share is None:
                self._insert(topic_filter, subscription)
                continue
            key = (subscription.share, topic_filter)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = SharedGroup()
                self._insert(topic_filter, group)
            group.members[subscription] = None

    def remove(self, Subscription subscription):
        """Remove a subscription that was added."""
        for topic_filter in subscription.granted_filters:
            if subscription.share is None:
                self._delete(topic_filter, subscription)
                continue
            key = (subscription.share, topic_filter)
            group = self._groups[key]
            group.members.pop(subscription, None)
            if not group.members:
                del self._groups[key]
                self._delete(topic_filter, group)

    cpdef list match(self, str topic):
        """Return the matching subscriptions; one occurs once for each of its matching filters."""
        cdef object exact = self._exact.get(topic)
        cdef list found
        if not self._wildcards:
            if exact is None:
                return []
            if type(exact) is Subscription:
                return [exact]
        found = []
        if exact is not None:
            if type(exact) is dict:
                found.extend(exact)
            else:
                found.append(exact)
        if self._wildcards:
            self._walk(topic, found)
        return [
            (<SharedGroup> subscriber).choose() if type(subscriber) is SharedGroup else subscriber
            for subscriber in found
        ]

    def match_unshared(self, str topic):
        """Return the matching subscriptions that are not shared."""
        cdef list found = []
        exact = self._exact.get(topic)
        if exact is not None:
            found.extend(exact if type(exact) is dict else (exact,))
        if self._wildcards:
            self._walk(topic, found)
        return [subscriber for subscriber in found if type(subscriber) is Subscription]

    def choose_here(self, str share, str topic_filter):
        """Return the next member in turn of a group at this worker; None if there is none."""
        group = self._groups.get((share, topic_filter))
        return None if group is None else group.choose(True)

    def group_state(self, str share, str topic_filter):
        """Return the state of a group's members at this worker.

        0: there are none; 1: the clients of all are away; 2: some are connected.
        """
        group = self._groups.get((share, topic_filter))
        state = 0
        for subscription in () if group is None else group.members:
            if not subscription.elsewhere:
                if subscription.session.connection is not None:
                    return 2
                state = 1
        return state

    def groups_here(self):
        """Return share name and filter of each group with members at this worker."""
        return [key for key in self._groups if self.group_state(*key)]

    cdef int _walk(self, str topic, list found) except -1:
        cdef list nodes = [self._root], following
        cdef _Node node, child
        wildcards_match = not topic.startswith("$")
        for level in topic.split("/"):
            following = []
            for node in nodes:
                if wildcards_match:
                    found.extend(node.below)
                    child = node.children.get("+")
                    if child is not None:
                        following.append(child)
                child = node.children.get(level)
                if child is not None:
                    following.append(child)
            if not following:
                return 0
            nodes = following
            wildcards_match = True
        for node in nodes:
            found.extend(node.here)
            found.extend(node.below)  # "a/#" matches "a" too
        return 0

    def _insert(self, str topic_filter, subscriber):
        cdef _Node node, child
        if not has_wildcard(topic_filter):
            exact = self._exact.get(topic_filter)
            if exact is None:
                self._exact[topic_filter] = subscriber
            elif isinstance(exact, dict):
                exact[subscriber] = None
            else:
                self._exact[topic_filter] = {exact: None, subscriber: None}
            return
        node = self._root
        levels = topic_filter.split("/")
        for level in levels[:-1] if levels[-1] == "#" else levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        (node.below if levels[-1] == "#" else node.here)[subscriber] = None
        self._wildcards += 1

    def _delete(self, str topic_filter, subscriber):
        cdef _Node node, child, parent
        if not has_wildcard(topic_filter):
            exact = self._exact.get(topic_filter)
            if isinstance(exact, dict):
                exact.pop(subscriber, None)
                if not exact:
                    del self._exact[topic_filter]
            elif exact is subscriber:
                del self._exact[topic_filter]
            return
        path = []
        node = self._root
        levels = topic_filter.split("/")
        for level in levels[:-1] if levels[-1] == "#" else levels:
            path.append((node, level))
            node = node.children[level]
        del (node.below if levels[-1] == "#" else node.here)[subscriber]
        self._wildcards -= 1
        for parent, level in reversed(path):
            child = parent.children[level]
            if child.children or child.here or child.below:
                break
            del parent.children[level]


def merge(subscriptions):
    """Group subscriptions by session: overlapping filters of a client are one delivery."""
    cdef dict merged = {}
    for subscription in subscriptions:
        merged.setdefault(subscription.session, []).append(subscription)
    return merged


cdef class ElsewhereInterest:
    """The interest of other workers' clients, by the keys of gateway.mqtt.workers.interest."""

    def __init__(self):
        self._keys = set()

    def __len__(self):
        return len(self._keys)

    def change(self, changes):
        """Apply changes: pairs of a key and whether it is wanted."""
        for key, wanted in changes:
            if wanted:
                self._keys.add(key)
            else:
                self._keys.discard(key)

    def clear(self):
        """Remove all keys."""
        self._keys.clear()

    cpdef bint wants(self, str topic):
        """Return whether a client elsewhere may want a message of this topic."""
        cdef Py_ssize_t first, second
        if not self._keys:
            return False
        if EVERYTHING in self._keys:
            return True
        first = topic.find("/")
        if first < 0:
            return topic in self._keys or topic + "/" in self._keys
        second = topic.find("/", first + 1)
        return (topic if second < 0 else topic[:second]) in self._keys or (
            topic[:first + 1] in self._keys
        )
