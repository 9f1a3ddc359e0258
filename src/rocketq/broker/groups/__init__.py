"""Consumer and producer groups: members, offsets, locks, assignment."""
