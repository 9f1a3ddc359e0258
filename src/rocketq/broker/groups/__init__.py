"""Consumer and producer groups: members, offsets, queue locks, assignment."""
