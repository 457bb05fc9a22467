"""tools/tidy.py: each check reports violations, and nothing else."""

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from tools.tidy import (
    ATTRIBUTES_MAX,
    FUNCTION_LINES_MAX,
    MODULE_LINES_MAX,
    Problem,
    check_all,
    check_citations,
    check_class_names,
    check_code,
    check_links,
    check_maps,
    check_mirror,
    check_name,
    check_titles,
)

SOURCE = "src/proxyless/lb/priority.py"
TOOL = "tools/priority.py"
DOCUMENT = "docs/adr/0001-layers.md"


def texts_of(problems: Iterable[Problem]) -> list[str]:
    return [str(problem) for problem in problems]


def function_of(lines: int) -> str:
    return "def choose():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    "path",
    ["src/proxyless/lb/utils.py", "tests/unit/helpers.py", "src/proxyless/common/x.py"],
)
def test_vague_name_is_found(path: str) -> None:
    assert len(texts_of(check_name(path))) == 1


@pytest.mark.parametrize("path", [SOURCE, "tests/unit/lb/test_priority.py", "docs/commonplace.md"])
def test_specific_name_is_accepted(path: str) -> None:
    assert texts_of(check_name(path)) == []


def test_missing_docstrings_are_found_in_source_with_their_lines() -> None:
    assert texts_of(check_code(SOURCE, "x = 1\nclass Child:\n    y = 2\n")) == [
        f"{SOURCE}:1: error: module has no docstring: write what it is",
        f"{SOURCE}:2: error: class 'Child' has no docstring",
    ]


def test_missing_docstrings_are_left_alone_outside_source() -> None:
    assert texts_of(check_code(TOOL, "class Child:\n    y = 2\n")) == []


@pytest.mark.parametrize(
    "line", ["from tests.spec.test_a56 import PriorityWorld", "from tests.spec import test_a56"]
)
def test_import_of_a_test_module_is_found(line: str) -> None:
    [problem] = texts_of(check_code("tests/unit/lb/test_x.py", line + "\n"))
    assert "from a test module, wanted it in tests/worlds" in problem


def test_import_of_a_world_is_accepted() -> None:
    text = "from tests.worlds.policies import PolicyWorld\nfrom proxyless.testing import Rule\n"
    assert texts_of(check_code("tests/unit/lb/test_x.py", text)) == []


def test_class_named_world_is_found_in_tests() -> None:
    text = "class World:\n    x = 1\n"
    what = "class 'World' does not say what it simulates"
    assert texts_of(check_code("tests/e2e/test_x.py", text)) == [
        f"tests/e2e/test_x.py:1: error: {what}"
    ]
    assert texts_of(check_code(TOOL, text)) == []


def test_rerun_without_a_reason_is_found() -> None:
    text = "@pytest.mark.{}\ndef test_x(): ...\n"
    path = "tests/e2e/test_x.py"
    assert texts_of(check_code(path, text.format("flaky(reruns=1)"))) == [
        f"{path}:1: error: rerun without a reason, wanted pytest.mark.rerun(reason)"
    ]
    assert texts_of(check_code(path, text.format('rerun("compares times")'))) == []


def test_longest_allowed_function_is_left_alone() -> None:
    assert texts_of(check_code(TOOL, function_of(FUNCTION_LINES_MAX))) == []


def test_longer_function_is_found() -> None:
    [problem] = check_code(TOOL, "\n" + function_of(FUNCTION_LINES_MAX + 1))
    assert problem.line == 2
    assert "function 'choose' has 71 lines, wanted at most 70" in problem.what


def test_longer_method_and_coroutine_are_found() -> None:
    body = "        x = 1\n" * FUNCTION_LINES_MAX
    text = f"class C:\n    def a(self):\n{body}\n    async def b(self):\n{body}"
    assert len(texts_of(check_code(TOOL, text))) == 2


def test_module_at_the_limit_is_left_alone_and_one_line_more_is_found() -> None:
    text = '"""Doc."""\n' + "x = 1\n" * (MODULE_LINES_MAX - 1)
    assert texts_of(check_code(SOURCE, text)) == []
    [problem] = check_code(SOURCE, text + "x = 1\n")
    assert (problem.line, "501 lines" in problem.what) == (501, True)


@pytest.mark.parametrize("comment", ["# TODO: later", "# TODO(me): x", "# FIXME", "x = 1  # XXX"])
def test_todo_without_an_issue_is_found(comment: str) -> None:
    assert len(texts_of(check_code(TOOL, comment + "\n"))) == 1


@pytest.mark.parametrize("line", ["# TODO(#12): later", "x = 'TODO: in a text'", "# todos"])
def test_todo_with_an_issue_and_other_text_is_left_alone(line: str) -> None:
    assert texts_of(check_code(TOOL, line + "\n")) == []


def test_document_must_have_exactly_one_title() -> None:
    assert texts_of(check_titles(DOCUMENT, "# One\n\n## Two\n")) == []
    assert texts_of(check_titles(DOCUMENT, "## Two\n")) == [
        f"{DOCUMENT}:1: error: document has no title, wanted one line '# Title'"
    ]
    assert texts_of(check_titles(DOCUMENT, "# One\n\n# Two\n")) == [
        f"{DOCUMENT}:3: error: document has a second title, the first is at line 1"
    ]


def test_comment_in_a_code_fence_is_no_title() -> None:
    assert texts_of(check_titles(DOCUMENT, "# One\n```sh\n# make\n```\n")) == []


def test_links_are_resolved_from_the_document() -> None:
    text = "[a](0002-b.md) [b](../style.md#names) [c](https://x.test/y) [d](../../README.md)\n"
    existing = {"docs/adr/0002-b.md", "docs/style.md", "README.md"}
    assert texts_of(check_links(DOCUMENT, text, existing.__contains__)) == []
    assert texts_of(check_links(DOCUMENT, text, (existing - {"docs/style.md"}).__contains__)) == [
        f"{DOCUMENT}:1: error: link to '../style.md' leads nowhere"
    ]


def missing_citations(text: str) -> list[str]:
    sources = {
        "src/proxyless/xds/view/__init__.py": "",
        "src/proxyless/lb/api.py": 'class Helper:\n    label = "proxyless.cluster"\n',
    }
    found = check_citations(DOCUMENT, text, sources, {"docs/spec"}.__contains__)
    return [problem.what for problem in found]


def test_cited_files_and_modules_that_exist_are_accepted() -> None:
    cited = "`docs/spec/`, `lb/api.py`, `xds.view`, `proxyless.lb.api.Helper`, `lb.api.Helper`"
    assert missing_citations(f"{cited}, `proxyless.lb_policies`, `channel.explain`") == []
    # The name of a metric, an attribute or an option.
    assert missing_citations("`proxyless.cluster`") == []
    assert missing_citations("```\n`lb/gone.py`\n```") == []


@pytest.mark.parametrize("cited", ["docs/gone.md", "lb/gone.py", "xds.gone", "proxyless.lb.api.X"])
def test_cited_file_or_module_that_does_not_exist_is_found(cited: str) -> None:
    assert missing_citations(f"see `{cited}`") == [f"there is no {cited!r}"]


@pytest.mark.parametrize(
    "module",
    ["src/proxyless/lb/priority.py", "src/proxyless/lb/priority/__init__.py"],
)
def test_unit_test_beside_its_module_is_left_alone(module: str) -> None:
    assert texts_of(check_mirror({"tests/unit/lb/test_priority.py", module})) == []


def test_unit_test_without_its_module_is_found() -> None:
    [problem] = check_mirror({"tests/unit/test_priority.py", "src/proxyless/lb/priority.py"})
    assert problem.path == "tests/unit/test_priority.py"
    assert problem.what == "unit test mirrors no module: there is no src/proxyless/priority.py"


def test_unit_tests_of_tools_mirror_tools() -> None:
    assert texts_of(check_mirror({"tests/unit/tools/test_tidy.py", "tools/tidy.py"})) == []
    assert (
        len(texts_of(check_mirror({"tests/unit/tools/test_tidy.py", "src/proxyless/tidy.py"}))) == 1
    )


def test_worlds_and_other_suites_need_no_module() -> None:
    paths = {"tests/unit/lb/world.py", "tests/spec/test_a56.py", "tests/unit/test_exports.py"}
    assert texts_of(check_mirror(paths)) == []


def test_whole_tree_is_read_without_caches(tmp_path: Path) -> None:
    for path in ("src/proxyless/x.py", "tools/__pycache__/y.py", ".venv/z.py", "README.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("# TODO\n", encoding="utf-8")
    assert [problem.path for problem in check_all(tmp_path)] == ["src/proxyless/x.py"] * 2


def class_with(attributes: int) -> str:
    lines = "".join(f"        self.a{number} = 0\n" for number in range(attributes))
    return f'"""A module."""\n\n\nclass A:\n    """A class."""\n\n    def __init__(self):\n{lines}'


def test_class_with_too_many_attributes_is_found() -> None:
    assert texts_of(check_code(SOURCE, class_with(ATTRIBUTES_MAX))) == []
    [found] = texts_of(check_code(SOURCE, class_with(ATTRIBUTES_MAX + 1)))
    assert f"class 'A' has {ATTRIBUTES_MAX + 1} attributes" in found


def sources_of(**texts: str) -> dict[str, ast.Module]:
    return {f"src/proxyless/lb/{name}.py": ast.parse(text) for name, text in texts.items()}


def test_module_that_the_docstring_of_its_package_does_not_name_is_found() -> None:
    sources = sources_of(__init__='"""Policies: config."""', config="", pickers="")
    sources["src/proxyless/lb/policies/__init__.py"] = ast.parse("")
    found = texts_of(check_maps(sources))
    assert [text.rpartition("name ")[2] for text in found] == ["'pickers'", "'policies'"]


def test_class_name_that_a_layer_uses_twice_is_found() -> None:
    sources = sources_of(a="class Child: pass", b="class Child: pass\nclass Other: pass")
    sources["src/proxyless/xds/c.py"] = ast.parse("class Child: pass")
    [found] = texts_of(check_class_names(sources))
    assert found.startswith("src/proxyless/lb/b.py:1: error: class 'Child'")


def test_class_name_may_be_used_by_both_apis() -> None:
    paths = ("src/proxyless/front/aio/channel.py", "src/proxyless/front/sync/channel.py")
    assert (
        texts_of(check_class_names({path: ast.parse("class Call: pass") for path in paths})) == []
    )
