"""Fast path for plain requests that send fixes, served without aiohttp."""
