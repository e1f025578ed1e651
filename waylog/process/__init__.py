"""Parts that every process of the platform needs: background work, readiness, child processes."""
