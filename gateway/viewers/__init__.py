"""Live viewers: the events that each receives, live and after an interruption."""
