"""Checks of the repository's own rules, for which no other tool has one.

Sizes, docstrings, maps of packages, names of files and classes, the mirror of tests/unit, imports
and reruns of tests, TODOs with a number, one title per document, links and cited modules that
exist. Each finding is one line, `path:line: error: what`, so an editor can jump to it. The checks
are pure functions over paths and texts; `check_all` reads files.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
ATTRIBUTES_MAX = 20
# Vague names collect unrelated code.
VAGUE_NAMES = frozenset({"common", "helper", "helpers", "misc", "util", "utilities", "utils"})

CODE_DIRS = ("src", "tests", "tools", "bench", "examples")
DOCUMENT_DIRS = ("docs", *CODE_DIRS)
SOURCE_DIR = "src/proxyless"
TESTS_DIR = "tests"
UNIT_DIR = "tests/unit"
WORLDS_DIR = "tests/worlds"
# Directories of tests/unit that mirror a directory beside src.
MIRRORED_BESIDE_SOURCE = ("bench", "tools")
# Unit tests of the package as a whole.
UNMIRRORED = frozenset(
    {
        "tests/unit/test_exports.py",
        "tests/unit/test_imports.py",
        "tests/unit/test_portability.py",
    }
)

NUMBERLESS_TODO = re.compile(r"\b(TODO(?!\(#\d+\): )|FIXME|XXX)\b")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s#]+)(#[^)]*)?\)")
FENCE = re.compile(r"^\s*(```|~~~)")
# Backticked texts of documents that name a file or a module.
CITED = re.compile(r"`(?P<cited>[\w./-]+)`")
CITED_FILE = re.compile(r"(src|tests|tools|bench|docs|examples)/[\w./-]+|\w+(/\w+)+\.py")
CITED_MODULE = re.compile(r"(proxyless\.|xds\.|lb\.)\w+(\.\w+)*")
# History may name what does not exist any more.
UNCHECKED_DOCUMENTS = ("CHANGELOG.md",)
# Entry points, loggers and channel options are not modules.
NOT_MODULES = re.compile(
    r"proxyless\.(http_filters|lb_policies|resolvers|subchannel|my_policy|certificates"
    r"|dns_refresh_interval_ms|serial_connection_attempts|xds_shared_stream|config_cache|flight_recorder|flight_recorder_directory)"
)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One broken rule, at one line."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: error: {self.what}"


def check_name(path: str) -> Iterator[Problem]:
    for part in PurePosixPath(path).parts:
        stem = part.partition(".")[0].removeprefix("test_").strip("_")
        if stem in VAGUE_NAMES:
            yield Problem(path, 1, f"name {part!r} is vague: name it after its content")


def check_code(path: str, text: str) -> Iterator[Problem]:
    """Check the rules for every Python file; the package has additional ones."""
    tree = ast.parse(text, filename=path)
    if path.startswith(SOURCE_DIR):
        yield from check_module_size(path, text)
        yield from check_docstrings(path, tree)
        yield from check_attributes(path, tree)
    if path.startswith(f"{TESTS_DIR}/"):
        yield from check_test_imports(path, tree)
        yield from check_test_vocabulary(path, tree)
    yield from check_function_sizes(path, tree)
    yield from check_todos(path, text)


def check_module_size(path: str, text: str) -> Iterator[Problem]:
    lines = len(text.splitlines())
    if lines > MODULE_LINES_MAX:
        what = f"module has {lines} lines, wanted at most {MODULE_LINES_MAX}: split it"
        yield Problem(path, MODULE_LINES_MAX + 1, what)


def check_docstrings(path: str, tree: ast.Module) -> Iterator[Problem]:
    if not ast.get_docstring(tree):
        yield Problem(path, 1, "module has no docstring: write what it is")
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not ast.get_docstring(node):
            yield Problem(path, node.lineno, f"class {node.name!r} has no docstring")


def check_function_sizes(path: str, tree: ast.Module) -> Iterator[Problem]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assert node.end_lineno is not None, "a parsed function ends somewhere"
        lines = node.end_lineno - node.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            what = f"function {node.name!r} has {lines} lines, wanted at most {FUNCTION_LINES_MAX}"
            yield Problem(path, node.lineno, f"{what}: extract a decision")


def check_attributes(path: str, tree: ast.Module) -> Iterator[Problem]:
    """Check the number of attributes that each `__init__` sets."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                count = len(set(own_attributes(method)))
                if count > ATTRIBUTES_MAX:
                    what = f"class {node.name!r} has {count} attributes, wanted at most"
                    yield Problem(path, method.lineno, f"{what} {ATTRIBUTES_MAX}: split its state")


def own_attributes(method: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                yield target.attr


def check_maps(sources: Mapping[str, ast.Module]) -> Iterator[Problem]:
    """Check that the docstring of each package's `__init__` names every module and subpackage."""
    for path, tree in sources.items():
        folder = PurePosixPath(path).parent
        if not path.endswith("/__init__.py") or str(folder) == SOURCE_DIR:
            continue
        text = ast.get_docstring(tree) or ""
        for other in sorted(sources):
            inside = PurePosixPath(other)
            if inside.name == "__init__.py":
                inside = inside.parent
            name = inside.stem
            if inside.parent != folder or name == "__main__":
                continue
            if not re.search(rf"\b{name}\b", text):
                yield Problem(path, 1, f"the package's docstring does not name {name!r}")


def check_class_names(sources: Mapping[str, ast.Module]) -> Iterator[Problem]:
    """Check that no class name is used twice inside one layer."""
    known: dict[tuple[str, str], str] = {}
    for path, tree in sorted(sources.items()):
        layer = layer_of(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                other = known.setdefault((layer, node.name), path)
                if other != path:
                    what = f"class {node.name!r} has the name of one in {other}"
                    yield Problem(path, node.lineno, what)


def layer_of(path: str) -> str:
    """Return the layer of a source file; the worlds of the tests are one layer.

    The two APIs have grpcio's names, so they count as two layers.
    """
    if path.startswith(WORLDS_DIR):
        return WORLDS_DIR
    parts = PurePosixPath(path).relative_to(SOURCE_DIR).parts
    return "/".join(parts[:2]) if parts[0] == "front" else parts[0]


def check_test_imports(path: str, tree: ast.Module) -> Iterator[Problem]:
    """Check that no module of the tests imports a test module."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            parts = (name := prefix + alias.name).split(".")
            if parts[0] == TESTS_DIR and any(part.startswith("test_") for part in parts):
                what = f"imports {name!r} from a test module, wanted it in {WORLDS_DIR}"
                yield Problem(path, node.lineno, what)


def check_test_vocabulary(path: str, tree: ast.Module) -> Iterator[Problem]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name="World"):
                yield Problem(path, node.lineno, "class 'World' does not say what it simulates")
            case ast.Attribute(attr="flaky") if path != f"{TESTS_DIR}/conftest.py":
                what = "rerun without a reason, wanted pytest.mark.rerun(reason)"
                yield Problem(path, node.lineno, what)


def check_todos(path: str, text: str) -> Iterator[Problem]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (todo := NUMBERLESS_TODO.search(token.string)):
            what = f"{todo[1]} without an issue, wanted 'TODO(#123): what'"
            yield Problem(path, token.start[0], what)


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines of a document that are outside code fences."""
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield number, line


def check_titles(path: str, text: str) -> Iterator[Problem]:
    titles = [number for number, line in prose_lines(text) if line.startswith("# ")]
    if not titles:
        yield Problem(path, 1, "document has no title, wanted one line '# Title'")
    for number in titles[1:]:
        yield Problem(
            path, number, f"document has a second title, the first is at line {titles[0]}"
        )


def check_links(path: str, text: str, exists: Callable[[str], bool]) -> Iterator[Problem]:
    """Check the links that stay inside the repository."""
    for number, line in prose_lines(text):
        for link in LINK.finditer(line):
            target = link["target"]
            if ":" not in target and not exists(resolve_link(path, target)):
                yield Problem(path, number, f"link to {target!r} leads nowhere")


def resolve_link(path: str, target: str) -> str:
    """The path of a relative link from the root of the repository."""
    parts = list(PurePosixPath(path).parent.parts)
    for part in PurePosixPath(target).parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def check_citations(
    path: str, text: str, sources: Mapping[str, str], exists: Callable[[str], bool]
) -> Iterator[Problem]:
    """Check that the files and modules that a document cites in backticks exist."""
    if path in UNCHECKED_DOCUMENTS:
        return
    for number, line in prose_lines(text):
        for match in CITED.finditer(line):
            cited = match["cited"].rstrip("./")
            if CITED_FILE.fullmatch(cited):
                is_there = exists(cited) or any(each.endswith(f"/{cited}") for each in sources)
            else:
                is_there = not CITED_MODULE.fullmatch(cited) or is_module(cited, sources)
            if not is_there:
                yield Problem(path, number, f"there is no {cited!r}")


def is_module(cited: str, sources: Mapping[str, str]) -> bool:
    """Whether a dotted name is that of a module, or of a name that occurs in one."""
    # Names of metrics, span attributes and options are texts in a module.
    if NOT_MODULES.fullmatch(cited) or any(f'"{cited}"' in each for each in sources.values()):
        return True
    parts = cited.removeprefix("proxyless.").split(".")
    for count in range(len(parts), -1, -1):
        inside = "/".join([SOURCE_DIR, *parts[:count]])
        text = sources.get(f"{inside}.py") or sources.get(f"{inside}/__init__.py")
        if text is not None:
            return all(re.search(rf"\b{name}\b", text) for name in parts[count:])
    return False


def check_mirror(paths: Collection[str]) -> Iterator[Problem]:
    """Check that each unit test file has the path of its module."""
    for path in sorted(paths):
        name = PurePosixPath(path).name
        is_unit_test = path.startswith(f"{UNIT_DIR}/") and name.startswith("test_")
        if not is_unit_test or path in UNMIRRORED:
            continue
        module = mirrored_module(path)
        if f"{module}.py" not in paths and f"{module}/__init__.py" not in paths:
            yield Problem(path, 1, f"unit test mirrors no module: there is no {module}.py")


def mirrored_module(path: str) -> str:
    """The path of the module of a unit test file, without its suffix."""
    inside = PurePosixPath(path).relative_to(UNIT_DIR)
    module = str(inside.with_name(inside.stem.removeprefix("test_")))
    beside = inside.parts[0] in MIRRORED_BESIDE_SOURCE
    return module if beside else f"{SOURCE_DIR}/{module}"


def find_files(root: Path) -> Iterator[str]:
    """List Python files and documents relative to the root, without caches and hidden ones."""
    for pattern, directories in (("*.py", CODE_DIRS), ("*.md", DOCUMENT_DIRS)):
        for directory in directories:
            for path in (root / directory).rglob(pattern):
                inside = path.relative_to(root)
                if not any(part.startswith((".", "__pycache__")) for part in inside.parts):
                    yield inside.as_posix()
    yield from (path.name for path in root.glob("*.md"))


def check_all(root: Path) -> list[Problem]:
    paths = {path for path in find_files(root) if not path.endswith(("_pb2.py", "_pb2_grpc.py"))}
    texts = {path: (root / path).read_text(encoding="utf-8") for path in paths}
    sources, worlds = (
        {
            path: ast.parse(text)
            for path, text in texts.items()
            if path.startswith(f"{directory}/") and path.endswith(".py")
        }
        for directory in (SOURCE_DIR, WORLDS_DIR)
    )
    problems = [*check_mirror(paths), *check_maps(sources), *check_class_names(sources | worlds)]
    for path, text in texts.items():
        problems += check_name(path)
        if path.endswith(".py"):
            problems += check_code(path, text)
        else:
            problems += check_titles(path, text)
            problems += check_links(path, text, lambda target: (root / target).exists())
            problems += check_citations(path, text, texts, lambda cited: (root / cited).exists())
    return sorted(problems)


def main() -> int:
    problems = check_all(ROOT)
    for problem in problems:
        print(problem)
    print(f"tidy: {len(problems)} problems" if problems else "tidy: no problems")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
