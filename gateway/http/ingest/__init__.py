"""Routes to which devices send: the formats of apps, and the responses that apps expect."""
