"""Regular expressions, their limits, and rewrites."""

import pytest

from proxyless.xds.resources.regex import (
    SUBSTITUTION_CHARACTERS_MAX,
    RegexCache,
    compile_regex,
    compile_rewrite,
    count_instructions,
    is_compiled,
)


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
        ("x" * 100_000, "has 100000 characters, wanted at most 4096"),
        (r"\pL" * 65, "has 65 Unicode classes, wanted at most 64"),
        (r"\pL" * 64, "pattern too large"),
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


def test_rewrite_with_a_long_substitution_is_rejected() -> None:
    assert compile_rewrite(".", "x" * SUBSTITUTION_CHARACTERS_MAX)("ab") == "x" * 512
    with pytest.raises(ValueError, match="has 257 characters, wanted at most 256"):
        compile_rewrite(".", "x" * (SUBSTITUTION_CHARACTERS_MAX + 1))


def test_rewrite_with_an_invalid_expression_is_rejected() -> None:
    with pytest.raises(ValueError, match="missing"):
        compile_rewrite("(", "")


def test_result_is_compiled_once_and_found_in_the_cache() -> None:
    source = "/only-in-this-test/.*"
    assert not is_compiled(source)
    assert compile_regex(source) is compile_regex(source)
    assert is_compiled(source)
    for _ in range(2):
        with pytest.raises(ValueError, match="missing"):
            compile_regex("only-in-this-test(")
    assert is_compiled("only-in-this-test(")


def test_cache_evicts_the_least_recently_used_pattern() -> None:
    cache = RegexCache(patterns_max=2, instructions_max=1_000)
    for source in ("a", "b"):
        cache.put(source, ValueError(source))
    assert isinstance(cache.get("a"), ValueError)
    cache.put("c", ValueError("c"))
    assert [source in cache for source in "abc"] == [True, False, True]
    assert len(cache) == 2


def test_cache_is_limited_by_the_size_of_the_programs() -> None:
    cache = RegexCache(patterns_max=100, instructions_max=1_000)
    regex = compile_regex("(a|b){100}")
    size = count_instructions(regex)
    assert 100 < size < 500
    for number in range(50):
        cache.put(str(number), regex)
    assert cache.instructions <= 1_000
    assert len(cache) == 1_000 // size
    cache.put("large", compile_regex("(a|b){1000}"))
    assert (len(cache), "large" in cache) == (1, True)


def test_result_of_the_faster_thread_is_kept() -> None:
    cache = RegexCache(patterns_max=2, instructions_max=1_000)
    first = cache.put("a", compile_regex("a"))
    assert cache.put("a", compile_regex("b")) is first
    assert cache.instructions == count_instructions(first)
