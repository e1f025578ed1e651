"""Authorization of requests before their handlers run, so that handlers need no ACL checks.

Each API has a rule. A rule leaves the permitted elements in the request for the handler, and adds
refusals of the others to the response; or it refuses the whole request. Fetch and ShareFetch check
topics again on each read (`may_read`), because a client may keep its fetch session for hours.
"""

from broker_core.server.authorization.table import RULES, authorize, may_read

__all__ = ["RULES", "authorize", "may_read"]
