"""What people are told of arrivals, addresses and favourite places."""
