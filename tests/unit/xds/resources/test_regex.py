"""What RE2 takes within its bounds, and what a rewrite makes of a text."""

import pytest

from proxyless.xds.resources.regex import compile_regex, compile_rewrite


def test_an_expression_describes_the_whole_text() -> None:
    regex = compile_regex("/a.*")
    assert regex.fullmatch("/abc")
    assert not regex.fullmatch("x/abc")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("(", r"missing \)"),
        (r"(a)\1", r"invalid escape sequence: \\1"),
        ("(?=a)", r"invalid perl operator: \(\?="),
        ("x" * 100_000, "pattern too large"),
        (r"\pL{1000}", "pattern too large"),
    ],
)
def test_what_re2_does_not_take_or_takes_too_much_is_refused(source: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
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
def test_every_match_is_replaced_as_re2_does(substitution: str, rewritten: str) -> None:
    rewrite = compile_rewrite("a(b)(c)?", substitution)
    assert rewrite("xab|abc") == rewritten
    assert rewrite("nothing") == "nothing"


@pytest.mark.parametrize(
    ("substitution", "said"),
    [
        ("\\", "wanted a digit or a backslash"),
        (r"\n", "wanted a digit or a backslash"),
        (r"\²", "wanted a digit or a backslash"),
        (r"\3", "wanted at most group 2"),
    ],
)
def test_a_substitution_that_means_nothing_is_refused(substitution: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compile_rewrite("a(b)(c)?", substitution)


def test_a_rewrite_needs_a_valid_expression() -> None:
    with pytest.raises(ValueError, match="missing"):
        compile_rewrite("(", "")
