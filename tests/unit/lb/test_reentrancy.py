"""`Hold`, which postpones a policy's reaction while it calls its children."""

import pytest

from proxyless.lb.reentrancy import Hold


def test_hold_is_active_inside_its_block_only() -> None:
    hold = Hold()
    seen = [hold.active]
    with hold:
        seen.append(hold.active)
    seen.append(hold.active)
    assert seen == [False, True, False]


def test_hold_reacts_once_when_its_block_is_over() -> None:
    reactions: list[bool] = []
    hold = Hold(lambda: reactions.append(hold.active))
    with hold:
        assert reactions == []
    assert reactions == [False]


def test_hold_ends_without_a_reaction_when_its_block_raises() -> None:
    reactions: list[bool] = []
    hold = Hold(lambda: reactions.append(True))
    with pytest.raises(RuntimeError), hold:
        raise RuntimeError("a child's bug")
    assert not hold.active
    assert reactions == []
