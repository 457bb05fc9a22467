"""Regular expressions, their limits, and rewrites."""

import pytest

from proxyless.xds.resources.regex import compile_regex, compile_rewrite


def test_fullmatch_needs_the_whole_text() -> None:
    regex = compile_regex("/a.*")
    assert regex.fullmatch("/abc")
    assert not regex.fullmatch("x/abc")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("(", r"missing \)"),
        (r"(a)\1", r"invalid escape sequence: \\1"),
        ("(?=a)", r"invalid perl operator: \(\?="),
        ("x" * 100_000, "pattern too large"),
        (r"\pL{1000}", "pattern too large"),
    ],
)
def test_invalid_and_too_large_expressions_are_rejected(source: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        compile_regex(source)


@pytest.mark.parametrize(
    ("substitution", "rewritten"),
    [
        ("", "x|"),
        ("-", "x-|-"),
        (r"\1", "xb|b"),
        (r"<\0>", "x<ab>|<abc>"),
        (r"\2.", "x.|c."),
        (r"\\1", r"x\1|\1"),
        (r"\1\1", "xbb|bb"),
        ("é\n", "xé\n|é\n"),
    ],
)
def test_rewrite_replaces_every_match(substitution: str, rewritten: str) -> None:
    rewrite = compile_rewrite("a(b)(c)?", substitution)
    assert rewrite("xab|abc") == rewritten
    assert rewrite("nothing") == "nothing"


@pytest.mark.parametrize(
    ("substitution", "error"),
    [
        ("\\", "wanted a digit or a backslash"),
        (r"\n", "wanted a digit or a backslash"),
        (r"\²", "wanted a digit or a backslash"),
        (r"\3", "wanted at most group 2"),
    ],
)
def test_invalid_substitution_is_rejected(substitution: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        compile_rewrite("a(b)(c)?", substitution)


def test_rewrite_with_an_invalid_expression_is_rejected() -> None:
    with pytest.raises(ValueError, match="missing"):
        compile_rewrite("(", "")
