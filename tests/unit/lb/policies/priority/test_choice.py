"""ChoiceIndex: after any changes, the choice is that of an index built from scratch."""

from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import State
from proxyless.lb.policies.priority.choice import (
    FAILED,
    ChildView,
    ChoiceIndex,
    Create,
    Reason,
    Use,
    choose,
)

STATES = st.sampled_from([State.READY, State.IDLE, State.CONNECTING, State.TRANSIENT_FAILURE])
VIEWS = st.none() | st.builds(ChildView, STATES, st.booleans(), st.booleans())


@given(
    st.lists(VIEWS, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), VIEWS), max_size=20),
)
def test_index_chooses_as_a_new_index_does(
    children: list[ChildView | None], changes: list[tuple[int, ChildView | None]]
) -> None:
    index = ChoiceIndex(children)
    for priority, child in changes:
        if priority < len(children):
            children[priority] = child
            index.set(priority, child)
        assert index.choose() == choose(children)


def test_index_holds_each_child_once_when_it_changes_often() -> None:
    ready = ChildView(State.READY, failover_timer_pending=False)
    index = ChoiceIndex([ready, FAILED, None])
    for _ in range(100):
        index.set(1, ready)
        index.set(1, FAILED)
    assert len(index._decisive._heap) == 3
    assert index.choose() == Use(0, Reason.CONNECTED, 1)
    index.set(0, FAILED)
    assert index.choose() == Create(2)
