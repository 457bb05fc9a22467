"""Unit tests of proxyless.channel.call_counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base import IpAddress
from proxyless.channel import call_counts
from proxyless.channel.call_counts import ChannelCounts

if TYPE_CHECKING:
    import pytest


def test_address_that_was_counted_first_is_removed_past_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_counts, "ADDRESSES_MAX", 2)
    counts = ChannelCounts(1)
    addresses = [IpAddress("10.0.0.1", port) for port in (1, 2, 3)]
    for address in addresses:
        counts.of_address(address).started += 1
    assert list(counts.addresses) == addresses[1:]
    assert counts.of_address(addresses[1]).started == 1
