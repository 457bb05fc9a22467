"""Unit tests of proxyless.controlplane.answers."""

from proxyless.base import StatusCode
from proxyless.controlplane import CLUSTER, ENDPOINTS, Nack, RequestRefused, Withheld


def test_withheld_types_and_names_add_up() -> None:
    withheld = Withheld().plus(CLUSTER).plus(ENDPOINTS, ["a"]).plus(ENDPOINTS, ["b"])
    assert withheld.types == {CLUSTER}
    assert withheld.names_of(ENDPOINTS) == {"a", "b"}
    assert withheld.names_of(CLUSTER) == frozenset()
    assert withheld.minus(ENDPOINTS) == Withheld().plus(CLUSTER)
    assert withheld.minus(CLUSTER).types == frozenset()


def test_withheld_differ_by_type() -> None:
    one, other = Withheld().plus(CLUSTER), Withheld().plus(ENDPOINTS, ["a"])
    assert one.differing_types(other) == {CLUSTER, ENDPOINTS}
    assert one.differing_types(one) == set()


def test_nack_names_the_client_and_the_version() -> None:
    nack = Nack("edge-7", CLUSTER, "3", 3, "no such policy")
    assert str(nack) == "xds node 'edge-7': cluster version '3' refused: no such policy"


def test_refusal_has_the_status_of_its_stream() -> None:
    refused = RequestRefused(StatusCode.RESOURCE_EXHAUSTED, "too many names")
    assert refused.status.code is StatusCode.RESOURCE_EXHAUSTED
    assert str(refused) == refused.status.details == "too many names"
