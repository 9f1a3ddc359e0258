"""Messages out: pulls, long polling, filters."""
