"""Sessions, subscriptions and queued messages: state machines without I/O."""
