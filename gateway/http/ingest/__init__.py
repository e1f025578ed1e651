"""Routes by which devices send: the formats of apps, and the answers that apps expect."""
