"""What a broker answers, one module per family of requests."""
