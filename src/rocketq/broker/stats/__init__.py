"""Counters, rates and what operators' tools read of them."""
