"""Sessions, subscriptions and what waits for clients: state machines without I/O."""
