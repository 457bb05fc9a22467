"""Unit tests of proxyless.xds.client.collection_response; tests/spec/test_xds_leds.py has more."""

from proxyless.runtime.work_queue import STEP_UNITS, finish
from proxyless.xds.bootstrap import DELTA, Bootstrap, ChannelCreds, ServerConfig
from proxyless.xds.client import DecodeContext, XdsClientOptions
from proxyless.xds.client.authorities import AuthorityServers
from proxyless.xds.client.cache import Entry
from proxyless.xds.client.codec import DiscoveryResponse, RawResource
from proxyless.xds.client.collection import CollectionCache
from proxyless.xds.client.collection_response import CollectionDecision
from proxyless.xds.client.response import INVALID_WORK_MAX, Outcome, make_rules
from tests.worlds.collections import DIRECTORY, GLOB, MemberType

SERVER = ServerConfig("a", ChannelCreds("insecure"), features=frozenset({DELTA}))


class Reader:
    """Decisions about responses of one server, applied to one watched collection."""

    def __init__(self, members_max: int = 100_000) -> None:
        self.kind = MemberType()
        self.kind.members_max = members_max
        self.entry = Entry(self.kind, GLOB, "mesh")
        self.cache = CollectionCache()
        self._authority = AuthorityServers[object]("mesh", (SERVER,), on_reachability_only=False)
        self._authority.add(self.entry)

    def decide(self, *members: RawResource, removed: tuple[str, ...] = ()) -> CollectionDecision:
        context = DecodeContext(SERVER, Bootstrap(servers=(SERVER,)))
        self.response = DiscoveryResponse(
            self.kind.type_url, "1", "n", members, is_delta=True, removed=removed
        )
        return CollectionDecision(
            self.kind,
            context,
            make_rules(SERVER, XdsClientOptions()),
            authorities={"mesh": self._authority},
            cache=self.cache,
        )

    def read(self, *members: RawResource, removed: tuple[str, ...] = ()) -> Outcome:
        outcome = self.decide(*members, removed=removed).run(self.response)
        for update in outcome.updates:
            update.apply("1", 0.0)
        return outcome

    def forget(self) -> None:
        self._authority.remove(self.entry)


def raw(name: str, value: bytes = b"v1") -> RawResource:
    return RawResource(MemberType.type_url, value, f"{DIRECTORY}/{name}", "1")


def test_large_response_is_read_in_steps() -> None:
    reader = Reader()
    decision = reader.decide(*(raw(str(number)) for number in range(1_000)))
    works = list(decision.run_in_steps(reader.response))
    assert len(works) > 50
    assert max(works) < 2 * STEP_UNITS


def test_work_of_one_changed_member_does_not_depend_on_the_others() -> None:
    counts = []
    for size in (10, 5_000):
        reader = Reader()
        reader.read(*(raw(str(number)) for number in range(size)))
        before = reader.kind.decoded
        decision = reader.decide(raw("3", b"v2"))
        assert list(decision.run_in_steps(reader.response)) == []
        counts.append(reader.kind.decoded - before)
    assert counts == [1, 1]


def test_collection_whose_watch_has_ended_is_not_changed() -> None:
    reader = Reader()
    decision = reader.decide(*(raw(str(number)) for number in range(200)))
    steps = decision.run_in_steps(reader.response)
    next(steps)
    reader.forget()
    assert finish(steps).updates == []
    assert not reader.cache.find(GLOB).members


def test_members_are_not_decoded_after_too_many_errors() -> None:
    reader = Reader()
    count = INVALID_WORK_MAX // 40 + 10
    outcome = reader.read(*(raw(str(number), b"bad") for number in range(count)))
    assert outcome.invalid == count
    assert reader.kind.decoded < count


def test_resource_of_another_type_is_an_error() -> None:
    outcome = Reader().read(RawResource("type.googleapis.com/other", b"", f"{DIRECTORY}/x", "1"))
    assert 'is "type.googleapis.com/other"' in outcome.error


def test_bug_of_a_decoder_is_an_error_of_its_member() -> None:
    reader = Reader()
    outcome = reader.read(raw("x", b"\xff"), raw("y"))
    assert "decoding raised UnicodeDecodeError" in outcome.error
    assert reader.entry.collection is not None
    assert list(reader.entry.collection.values) == [f"{DIRECTORY}/y"]


def test_members_that_a_response_removes_make_room_for_others() -> None:
    reader = Reader(members_max=3)
    reader.read(raw("a"), raw("b"), raw("c"))
    removed = tuple(f"{DIRECTORY}/{name}" for name in ("a", "b", "b", "unknown"))
    outcome = reader.read(raw("d"), raw("e"), raw("f"), removed=removed)
    assert "wanted at most 3" in outcome.error
    assert [name[-1] for name in reader.cache.find(GLOB).members] == ["c", "d", "e"]
