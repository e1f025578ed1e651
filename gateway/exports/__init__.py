"""Exports: what users take out of the platform, made by a process of its own as it is sent."""
