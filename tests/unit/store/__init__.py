"""The store's parts and its interface, on small files and a clock that stands still."""
