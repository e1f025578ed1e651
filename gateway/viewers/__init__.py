"""Live viewers: what each is told, now and after an interruption."""
