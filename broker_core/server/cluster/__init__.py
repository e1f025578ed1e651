"""A broker's membership in a cluster: registration, metadata quorum, controller, replication."""
