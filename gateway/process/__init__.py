"""The processes of the gateway: how their parts are put together, start and stop."""
