"""Settings, registration, autosave and periodic jobs."""
