"""Unit tests of proxyless.observe.explain_tls."""

from __future__ import annotations

import pytest

from proxyless.observe.explain_clusters import explain_cluster
from proxyless.observe.explain_tls import NAMES_SHOWN_MAX, explain_tls
from proxyless.xds.config import ClusterConfig
from proxyless.xds.resources import CertificateInstance, SanMatcher, StringMatcher, UpstreamTls
from tests.worlds.xds_resources import cluster, endpoints

START = "TLS, for channels with xDS credentials: "
ANY_NAME = "the server's certificate may have any name"
MUST_BE = "the server's certificate must have a name that is "
ROOTS = 'roots of certificate provider "roots"'
SNI_NAME = "the server's certificate must have the name in the SNI"
CA = CertificateInstance("roots")


@pytest.mark.parametrize(
    ("tls", "texts"),
    [
        (UpstreamTls(None), ["the system's roots", ANY_NAME]),
        (
            UpstreamTls(CA, CertificateInstance("mine"), (StringMatcher("exact", "spiffe://a/b"),)),
            [ROOTS, 'client certificate of "mine"', f'{MUST_BE}"spiffe://a/b"'],
        ),
        (
            UpstreamTls(CA, san_matchers=(StringMatcher("prefix", "a.", ignore_case=True),)),
            [ROOTS, f'{MUST_BE}anything with the prefix "a."', "in any case"],
        ),
        (
            UpstreamTls(
                CA,
                san_matchers=(
                    SanMatcher("DNS", StringMatcher("suffix", ".b")),
                    StringMatcher("contains", "c"),
                ),
            ),
            [ROOTS, f'{MUST_BE}of type DNS and anything with the suffix ".b" or anything with "c"'],
        ),
        (
            UpstreamTls(CA, san_matchers=(StringMatcher("regex", "d+"),), sni="x.test"),
            [ROOTS, f'{MUST_BE}matched by the regex "d+"', 'SNI "x.test"'],
        ),
        (
            UpstreamTls(None, auto_host_sni=True, auto_sni_san_validation=True),
            ["the system's roots", SNI_NAME, "SNI is the hostname of the endpoint"],
        ),
    ],
)
def test_tls_is_described_in_one_line(tls: UpstreamTls, texts: list[str]) -> None:
    assert explain_tls(tls).text == START + ", ".join(texts)


def test_many_names_are_counted_in_the_text_and_listed_in_the_facts() -> None:
    names = tuple(StringMatcher("exact", str(number)) for number in range(NAMES_SHOWN_MAX + 3))
    found = explain_tls(UpstreamTls(CA, san_matchers=names))
    assert found.text.endswith(' or "4" or 3 more')
    assert found.facts["names"] == [f'"{number}"' for number in range(NAMES_SHOWN_MAX + 3)]


def test_cluster_with_tls_is_explained_with_it() -> None:
    made = cluster("a", tls=UpstreamTls(CA))
    result = (ClusterConfig("a", made, endpoints("a", "127.0.0.1:1"), ""),)
    (line,) = explain_cluster("a", result).find("tls")
    assert line.facts["ca"] == "roots"
    without = (ClusterConfig("b", cluster("b"), None, ""),)
    assert not list(explain_cluster("b", without).find("tls"))
