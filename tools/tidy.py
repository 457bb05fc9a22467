"""Checks of the repository's own rules, for which no other tool has one.

Sizes, docstrings, maps of packages, names of files and classes, the mirror of tests/unit, TODOs
with a number, one title per document, links that lead somewhere. Each finding is one line,
`path:line: error: what`, so an editor can jump to it. The checks are pure functions over paths and
texts; `check_all` reads files.
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
# A name that says nothing attracts everything.
VAGUE_NAMES = frozenset({"common", "helper", "helpers", "misc", "util", "utilities", "utils"})

CODE_DIRS = ("src", "tests", "tools", "bench", "examples")
DOCUMENT_DIRS = ("docs", *CODE_DIRS)
SOURCE_DIR = "src/proxyless"
UNIT_DIR = "tests/unit"
# Rooms of tests/unit that mirror a directory beside src.
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
            yield Problem(path, 1, f"name {part!r} says nothing: name the thing that is inside")


def check_code(path: str, text: str) -> Iterator[Problem]:
    """Check what holds for every Python file; what ships has stricter rules on top."""
    tree = ast.parse(text, filename=path)
    if path.startswith(SOURCE_DIR):
        yield from check_module_size(path, text)
        yield from check_docstrings(path, tree)
        yield from check_attributes(path, tree)
    yield from check_function_sizes(path, tree)
    yield from check_todos(path, text)


def check_module_size(path: str, text: str) -> Iterator[Problem]:
    lines = len(text.splitlines())
    if lines > MODULE_LINES_MAX:
        what = (
            f"module has {lines} lines, wanted at most {MODULE_LINES_MAX}: find its second purpose"
        )
        yield Problem(path, MODULE_LINES_MAX + 1, what)


def check_docstrings(path: str, tree: ast.Module) -> Iterator[Problem]:
    if not ast.get_docstring(tree):
        yield Problem(path, 1, "module has no docstring: say which question it answers")
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
            yield Problem(path, node.lineno, f"{what}: name the decision that hides in it")


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
    """The layer of a source file. The two APIs have grpcio's names, so they count as two layers."""
    parts = PurePosixPath(path).relative_to(SOURCE_DIR).parts
    return "/".join(parts[:2]) if parts[0] == "front" else parts[0]


def check_todos(path: str, text: str) -> Iterator[Problem]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (todo := NUMBERLESS_TODO.search(token.string)):
            what = f"{todo[1]} without an issue, wanted 'TODO(#123): what'"
            yield Problem(path, token.start[0], what)


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number the lines of a document that are not inside a code fence."""
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
    """Say which path of the repository a relative link means, without asking the file system."""
    parts = list(PurePosixPath(path).parent.parts)
    for part in PurePosixPath(target).parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def check_mirror(paths: Collection[str]) -> Iterator[Problem]:
    """Each unit test file stands where the module it tests stands."""
    for path in sorted(paths):
        name = PurePosixPath(path).name
        is_unit_test = path.startswith(f"{UNIT_DIR}/") and name.startswith("test_")
        if not is_unit_test or path in UNMIRRORED:
            continue
        module = mirrored_module(path)
        if f"{module}.py" not in paths and f"{module}/__init__.py" not in paths:
            yield Problem(path, 1, f"unit test mirrors no module: there is no {module}.py")


def mirrored_module(path: str) -> str:
    """Say which module a unit test file is about, without its ending."""
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
    sources = {
        path: ast.parse((root / path).read_text(encoding="utf-8"))
        for path in paths
        if path.startswith(SOURCE_DIR) and path.endswith(".py")
    }
    problems = [*check_mirror(paths), *check_maps(sources), *check_class_names(sources)]
    for path in paths:
        text = (root / path).read_text(encoding="utf-8")
        problems += check_name(path)
        if path.endswith(".py"):
            problems += check_code(path, text)
        else:
            problems += check_titles(path, text)
            problems += check_links(path, text, lambda target: (root / target).exists())
    return sorted(problems)


def main() -> int:
    problems = check_all(ROOT)
    for problem in problems:
        print(problem)
    print(f"tidy: {len(problems)} problems" if problems else "tidy: nothing to say")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
