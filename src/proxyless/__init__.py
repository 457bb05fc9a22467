"""gRPC's xDS client stack in pure Python.

This is the front door. Today it exports only the version: the rooms below it are being built from
the ground up, and docs/architecture.md says which of them exist.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
