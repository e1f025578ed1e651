"""What `waylog up` prints."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Final

from waylog.config import local_url
from waylog.supervision.output_audience import is_readable_by_others
from waylog.supervision.platform_plan import PlatformPlan
from waylog.supervision.platform_processes import waylog_command
from waylog.supervision.process_spec import StartError

logger = logging.getLogger(__name__)

DEMO_USER: Final = "demo"


def tell(*lines: str) -> None:
    """Print lines; the platform runs on if they cannot be written, or nobody reads them."""
    try:
        print(*lines, sep="\n", flush=True)
    except OSError as error:
        logger.warning("the output goes nowhere from now on: %s", error.strerror)
        # What is buffered, and what will be printed, would fail again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


async def tell_ready(plan: PlatformPlan) -> None:
    """Print where the platform serves; raises StartError."""
    lines = [f"live map     {await _sign_in_link(plan)}"]
    if not plan.open:
        lines.append(f"demo user    {DEMO_USER}, password in {plan.data.demo_token}")
    lines.append(f"data, logs   {plan.data.root.resolve()}")
    if plan.brokers is not None:
        places = [plan.http, *(broker.metrics for broker in plan.brokers.brokers)]
        pages = ",".join(f" http://{place}/metrics" for place in places)
        lines.append(f"metrics     {pages} (token in {plan.data.metrics_token})")
    where = f"http={plan.http} mqtt={plan.mqtt} kafka={plan.bootstrap_servers}"
    tell(*lines, f"waylog ready {where}")


async def _sign_in_link(plan: PlatformPlan) -> str:
    """Return the URL of the live map, which signs in the first browser that opens it."""
    url = f"{local_url(plan.http)}/"
    if plan.open:
        return url
    if is_readable_by_others(sys.stdout.fileno(), os.environ.get("JOURNAL_STREAM")):
        return f"{url} (sign in by the link that `waylog link` prints)"
    process = await asyncio.create_subprocess_exec(
        *waylog_command("link", "--users", str(plan.data.users), "--gateway", url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    link, errors = await process.communicate()
    if process.returncode != 0:
        raise StartError(f"no link for the live map could be made: {errors.decode().strip()}")
    return f"{link.decode().strip()} (once; `waylog link` prints another one)"
