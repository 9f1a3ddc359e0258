"""The wire protocol without IO: bytes in, values out. docs/wire.md says where things live."""
