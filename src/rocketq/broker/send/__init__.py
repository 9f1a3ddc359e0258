"""Messages in: sends, send-backs, replies."""
