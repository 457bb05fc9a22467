"""References to clusters: counted, with a subscription until they are dropped."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from proxyless.xds.routing.cluster_refs import ClusterRef, ClusterRefs


class Subscriptions:
    """Counts the subscriptions of each cluster."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()

    def subscribe(self, name: str) -> "Subscription":
        self.held[name] += 1
        return Subscription(self, name)


class Subscription:
    def __init__(self, owner: Subscriptions, name: str) -> None:
        self._owner = owner
        self._name = name

    def release(self) -> None:
        self._owner.held[self._name] -= 1


KEYS = ("cluster:a", "cluster:b", "cluster_specifier_plugin:a")
STEPS = st.lists(st.one_of(st.sampled_from(KEYS), st.integers(0, 10), st.just("drop")), max_size=40)


@given(STEPS)
def test_count_is_the_number_of_holders(steps: list[str | int]) -> None:
    unused: list[None] = []
    refs = ClusterRefs(lambda: unused.append(None))
    subscriptions = Subscriptions()
    held: list[ClusterRef] = []
    for step in steps:
        if step == "drop":
            refs.drop_unused()
            assert set(refs.keys) == {ref.key for ref in held}
        elif isinstance(step, str):
            held.append(refs.acquire(step, subscriptions))
        elif held:
            before = len(unused)
            ref = held.pop(step % len(held))
            ref.release()
            assert (len(unused) > before) is (ref not in held), "called for the last holder"
        for key in KEYS:
            assert refs.count(key) == sum(ref.key == key for ref in held)
        # A reference without holders keeps its subscription until it is dropped.
        expected = {key.removeprefix("cluster:") for key in refs.keys if key.startswith("cluster:")}
        assert {name for name, count in subscriptions.held.items() if count} == expected
        assert max(subscriptions.held.values(), default=0) <= 1


def test_reference_is_the_same_when_acquired_again_before_it_is_dropped() -> None:
    refs, subscriptions = ClusterRefs(lambda: None), Subscriptions()
    ref = refs.acquire("cluster:a", subscriptions)
    ref.release()
    assert refs.acquire("cluster:a", subscriptions) is ref
    refs.drop_unused()
    assert len(refs) == 1
    assert subscriptions.held["a"] == 1
