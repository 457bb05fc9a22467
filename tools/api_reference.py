"""Generator of docs/api, the reference of public names, from the sources.

    python -m tools.api_reference            rewrite the pages
    python -m tools.api_reference --check    only compare

Nothing is imported. `__all__` of a public module lists the names, its imports lead to their
definitions, and these have the signature, the docstring and the comments. So the pages depend only
on the sources.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PAGES = ROOT / "docs" / "api"

# The public modules with their descriptions, and those of which only some names are public.
PUBLIC_MODULES: dict[str, str] = {
    "proxyless": "blocking channels, credentials, registries",
    "proxyless.aio": "channels for asyncio",
    "proxyless.admin": "CSDS: the xDS state of a process",
    "proxyless.otel": "metrics and traces, through OpenTelemetry",
    "proxyless.metrics": "for authors of other stats plugins",
    "proxyless.front": "methods of channels and sessions",
    "proxyless.lb": "for authors of load balancing policies",
    "proxyless.resolver": "for authors of resolvers",
    "proxyless.xds.filters": "for authors of HTTP filters",
    "proxyless.controlplane": "the embedded control plane",
    "proxyless.sim": "the whole mesh in virtual time",
    "proxyless.testing": "the conformance kit for policies",
    "proxyless.runtime": "clock, random source and network, for policies and resolvers",
    "proxyless.base": "values that all packages use",
}
PUBLIC_NAMES: dict[str, tuple[str, ...]] = {
    "proxyless.front": ("AioChannel", "AioSession", "SyncChannel", "SyncSession"),
}
LINE_MAX = 96
# The map of a package: a name, at least two spaces, a description; and continuation lines.
MAP_LINE = re.compile(r"^\w[\w, ]*\w {2,}\S")
MAP_REST = re.compile(r"^ {4,}\S")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Module:
    """The source of one module."""

    name: str
    lines: tuple[str, ...]
    tree: ast.Module

    @property
    def exports(self) -> list[str]:
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return sorted(ast.literal_eval(node.value), key=lambda name: (name.lower(), name))
        raise ValueError(f"module {self.name!r} has no __all__")

    def comment_before(self, node: ast.stmt) -> str:
        """The comment in the lines above."""
        found: list[str] = []
        number = node.lineno - 2
        while number >= 0 and (line := self.lines[number].strip()).startswith("#"):
            if line.startswith("# ---"):
                break
            found.insert(0, line.removeprefix("#").strip())
            number -= 1
        return " ".join(found)


@cache
def read_module(name: str) -> Module | None:
    """The module, or None if it is not in the package."""
    path = SOURCE / Path(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.exists():
            text = candidate.read_text(encoding="utf-8")
            return Module(name, tuple(text.splitlines()), ast.parse(text))
    return None


def find_definition(module: Module, name: str) -> tuple[Module, Definition] | None:
    """The definition of a name, through re-exports; None if it is a module."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    home = read_module(node.module)
                    if home is None or read_module(f"{node.module}.{alias.name}") is not None:
                        return None
                    return find_definition(home, alias.name)
    for statement in module.tree.body:
        if name in _names_of(statement):
            assert isinstance(statement, Definition), "only definitions have names"
            return module, statement
    return None


def _names_of(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [ast.unparse(target) for target in node.targets]
        case ast.AnnAssign():
            return [ast.unparse(node.target)]
        case _:
            return []


# ---------------------------------------------------------------------------------------------
# Rendering


def render_module(name: str) -> str:
    """The page of one public module."""
    module = read_module(name)
    assert module is not None, f"there is no module {name}"
    parts = [f"# {name}", *_prose(ast.get_docstring(module.tree) or "")]
    exports = PUBLIC_NAMES.get(name, tuple(module.exports))
    for export in exports:
        if not export.startswith("__"):
            parts += _render_export(module, export, exports)
    return "\n\n".join(parts) + "\n"


def _render_export(public: Module, name: str, exports: tuple[str, ...]) -> Iterator[str]:
    found = find_definition(public, name)
    yield f"## {name}"
    if found is None:
        yield f"A module: [{public.name}.{name}]({public.name}.{name}.md)."
        return
    home, node = found
    match node:
        case ast.ClassDef():
            yield from _render_class(home, node)
            for base in map(ast.unparse, node.bases):
                inherited = None if base in exports else find_definition(home, base)
                if inherited is not None and isinstance(inherited[1], ast.ClassDef):
                    yield from _render_methods(inherited[1])
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield _code(_signature(node))
            yield from _prose(ast.get_docstring(node) or "")
        case _:
            yield _code(_shortened(ast.unparse(node)))
            if comment := home.comment_before(node):
                yield comment


def _render_class(home: Module, node: ast.ClassDef) -> Iterator[str]:
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    yield _code(f"{_decorators(node)}class {node.name}{bases}{_constructor(node)}")
    yield from _prose(ast.get_docstring(node) or "")
    if fields := list(_fields(home, node)):
        yield "\n".join(fields)
    yield from _render_methods(node)


def _render_methods(node: ast.ClassDef) -> Iterator[str]:
    for method in node.body:
        if isinstance(method, Function) and not method.name.startswith("_"):
            if any(ast.unparse(each).endswith(".setter") for each in method.decorator_list):
                continue
            yield _code(_decorators(method) + _signature(method))
            yield from _prose(ast.get_docstring(method) or "")


def _decorators(node: Function | ast.ClassDef) -> str:
    return "".join(f"@{ast.unparse(each)}\n" for each in node.decorator_list)


def _constructor(node: ast.ClassDef) -> str:
    """The signature of `__init__`, if the class has one."""
    for method in node.body:
        if isinstance(method, Function) and method.name == "__init__":
            return ":\n    " + _signature(method).replace("\n", "\n    ")
    return ""


def _fields(home: Module, node: ast.ClassDef) -> Iterator[str]:
    """The fields of a dataclass and the members of an enum, with the comments above them."""
    for statement in node.body:
        names = [name for name in _names_of(statement) if not name.startswith("_")]
        if isinstance(statement, ast.Assign | ast.AnnAssign) and names:
            text = f"- `{_shortened(ast.unparse(statement))}`"
            comment = home.comment_before(statement)
            yield f"{text}: {comment}" if comment else text


def _signature(node: Function) -> str:
    """One line if it fits, else a line for each parameter."""
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    parameters = [_spaced(each) for each in _split(ast.unparse(node.args))]
    line = f"{keyword} {node.name}({', '.join(parameters)}){returns}"
    if len(line) <= LINE_MAX:
        return line
    lines = "".join(f"    {each},\n" for each in parameters)
    return f"{keyword} {node.name}(\n{lines}){returns}"


def _spaced(parameter: str) -> str:
    """Put spaces around the `=` of a parameter with a type."""
    name, colon, rest = parameter.partition(": ")
    kind, sign, default = rest.partition("=")
    return f"{name}: {kind} = {default}" if colon and sign else parameter


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets and quotes."""
    parts, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == "'"
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _shortened(text: str) -> str:
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 4]} ..."


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _prose(docstring: str) -> Iterator[str]:
    """A docstring as Markdown: its paragraphs, with code as code, without the map of a package."""
    for paragraph in docstring.split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if not lines or _is_map(lines):
            continue
        if _is_code(paragraph):
            yield _code(_dedented(lines))
        else:
            yield "\n".join(line.rstrip() for line in lines)


def _is_map(lines: list[str]) -> bool:
    is_rest = (MAP_LINE.match(line) or MAP_REST.match(line) for line in lines)
    return MAP_LINE.match(lines[0]) is not None and all(is_rest)


def _is_code(paragraph: str) -> bool:
    """Whether Python can parse it; sentences rarely are programs."""
    text = _dedented(paragraph.strip("\n").splitlines())
    if not re.search(r"[(=]", text):
        return False
    try:
        compile(text, "docstring", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    except SyntaxError:
        return False
    return True


def _dedented(lines: list[str]) -> str:
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[indent:] for line in lines)


def render_all() -> dict[str, str]:
    """Every page by its file's name."""
    rows = "\n".join(f"| [{name}]({name}.md) | {what} |" for name, what in PUBLIC_MODULES.items())
    index = (
        "# API reference\n\nWritten by `python -m tools.api_reference` from signatures, docstrings"
        " and comments; a test compares.\nOther names are not public.\n\n"
        f"| module | what |\n|---|---|\n{rows}\n"
    )
    return {"README.md": index} | {f"{name}.md": render_module(name) for name in PUBLIC_MODULES}


def stale_pages(pages: Path = PAGES) -> list[str]:
    """The names of pages that differ from the sources, or should not exist."""
    wanted = render_all()
    kept = {path.name: path.read_text(encoding="utf-8") for path in pages.glob("*.md")}
    return sorted(name for name in wanted | kept if wanted.get(name) != kept.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/api from the sources.")
    parser.add_argument("--check", action="store_true", help="only compare")
    stale = stale_pages()
    if not parser.parse_args().check:
        PAGES.mkdir(exist_ok=True)
        for name, text in render_all().items():
            (PAGES / name).write_text(text, encoding="utf-8")
        print(f"docs/api: {len(stale)} pages rewritten")
        return 0
    for name in stale:
        print(f"docs/api/{name}: is stale, run 'python -m tools.api_reference'")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
