"""Shared by all handlers: authentication, the parts of the gateway, responses and refusals."""
