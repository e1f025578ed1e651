"""What every process of the platform needs: background work, readiness, children."""
