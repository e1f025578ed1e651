"""What a client may ask: checked before its handler, so that no handler knows about ACLs.

Each API has a rule. A rule leaves in the request what is allowed, lets the handler answer that, and
adds the refusals to the answer; or it refuses the request as a whole. Only Fetch asks again each
time it reads (`may_read`): its client may hold a session open for hours.
"""

from broker_core.server.authorization.table import RULES, authorize, may_read

__all__ = ["RULES", "authorize", "may_read"]
