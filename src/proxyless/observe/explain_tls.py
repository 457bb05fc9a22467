"""Explanation of a cluster's TLS: roots, client certificate, names that are accepted, SNI.

Specs: A29, A82 (system roots), A101 (SNI). Channels without xDS credentials do not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import quote
from proxyless.base.explanation import Explanation
from proxyless.xds.resources import SanMatcher

if TYPE_CHECKING:
    from proxyless.xds.resources import StringMatcher, UpstreamTls

# More are counted, not shown.
NAMES_SHOWN_MAX: Final = 5


def explain_tls(tls: UpstreamTls) -> Explanation:
    """The TLS settings of a cluster."""
    roots = "the system's roots"
    if tls.ca is not None:
        roots = f"roots of certificate provider {quote(tls.ca.instance_name)}"
    texts = [f"TLS, for channels with xDS credentials: {roots}"]
    if tls.identity is not None:
        texts.append(f"client certificate of {quote(tls.identity.instance_name)}")
    texts.append(_describe_names(tls))
    if tls.auto_host_sni:
        texts.append("SNI is the hostname of the endpoint")
    elif tls.sni:
        texts.append(f"SNI {quote(tls.sni)}")
    facts = {
        "ca": None if tls.ca is None else tls.ca.instance_name,
        "identity": None if tls.identity is None else tls.identity.instance_name,
        "names": [_describe_name(each) for each in tls.san_matchers],
        "sni": tls.sni,
    }
    return Explanation("tls", ", ".join(texts), facts)


def _describe_names(tls: UpstreamTls) -> str:
    if tls.auto_sni_san_validation:
        return "the server's certificate must have the name in the SNI"
    if not tls.san_matchers:
        return "the server's certificate may have any name"
    shown = [_describe_name(each) for each in tls.san_matchers[:NAMES_SHOWN_MAX]]
    if more := len(tls.san_matchers) - len(shown):
        shown.append(f"{more} more")
    return f"the server's certificate must have a name that is {' or '.join(shown)}"


def _describe_name(name: StringMatcher | SanMatcher) -> str:
    """A name that is accepted, as the end of a sentence."""
    kind, matcher = "", name
    if isinstance(matcher, SanMatcher):
        kind, matcher = f"of type {matcher.san_type} and ", matcher.matcher
    verbs = {
        "exact": "",
        "prefix": "anything with the prefix ",
        "suffix": "anything with the suffix ",
        "contains": "anything with ",
        "regex": "matched by the regex ",
    }
    case = ", in any case" if matcher.ignore_case and matcher.kind != "regex" else ""
    return f"{kind}{verbs[matcher.kind]}{quote(matcher.value)}{case}"
