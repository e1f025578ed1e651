"""Plain requests that send fixes, served without aiohttp."""
