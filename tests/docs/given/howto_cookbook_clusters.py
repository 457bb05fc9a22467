"""Precondition: as for the first page of the cookbook."""

from __future__ import annotations

from functools import partial

from tests.docs.given import howto_cookbook

given = partial(howto_cookbook.given, page="docs/howto/cookbook-clusters.md")
