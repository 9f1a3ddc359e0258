"""The kernel's byte formats, judged by independent models written here."""
