"""Broker stats: counters, rates, runtime info and consumer progress."""
