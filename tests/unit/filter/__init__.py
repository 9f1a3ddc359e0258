"""Conditions: the grammar, what they mean, and the kernel's programs against a reference that walks the parsed tree."""
