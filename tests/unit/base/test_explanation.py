"""Unit tests of proxyless.base.explanation."""

from proxyless.base.explanation import Explanation, to_json, to_text

LEAF = Explanation("leaf", "it is a leaf", {"weight": 3}, problem="it fell")
TREE = Explanation("root", "it is a tree", parts=(Explanation("twig", "a twig", parts=(LEAF,)),))


def test_text_is_indented_by_depth() -> None:
    assert to_text(TREE) == "it is a tree\n  a twig\n    it is a leaf"


def test_a_line_break_in_a_name_is_escaped() -> None:
    forged = Explanation("leaf", "locality a\n  b: READY\x1b[1m")
    assert to_text(Explanation("root", "it", parts=(forged,))) == (
        "it\n  locality a   b: READY\\x1b[1m"
    )


def test_json_has_facts_and_no_empty_fields() -> None:
    leaf = {"kind": "leaf", "text": "it is a leaf", "problem": "it fell", "weight": 3}
    twig = {"kind": "twig", "text": "a twig", "parts": [leaf]}
    assert to_json(TREE) == {"kind": "root", "text": "it is a tree", "parts": [twig]}


def test_nodes_are_found_by_kind_at_any_depth() -> None:
    assert list(TREE.find("leaf")) == [LEAF]
    assert list(TREE.find("root")) == [TREE]
    assert list(TREE.find("fruit")) == []
