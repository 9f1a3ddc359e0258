"""What every request passes before its handler: admission, quotas, access, persistence."""
