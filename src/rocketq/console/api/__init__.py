"""Routes of `/api/v1`, by subject."""
