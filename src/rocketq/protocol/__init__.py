"""The wire protocol without IO: bytes in, values out. docs/internals/wire.md lists the modules."""
