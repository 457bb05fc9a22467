"""Which release is this? Apart from the front door, so that every room may ask."""

__version__ = "0.1.0.dev0"
