"""Half messages, their decisions and checks."""
