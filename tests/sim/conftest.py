"""Fixture `mesh`: the short name of `proxyless_mesh`."""

from proxyless.pytest_plugin import proxyless_mesh as mesh

__all__ = ["mesh"]
