"""A broker's part in a cluster: its controller, its place in the quorum, what it is told."""
