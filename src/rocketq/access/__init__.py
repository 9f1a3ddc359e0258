"""Access control: who sends a request, what it needs, and whether that is allowed. Pure decisions and their files."""
