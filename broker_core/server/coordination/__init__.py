"""Group and transaction coordinators on the server, and the topics that hold their records."""
