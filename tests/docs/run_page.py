"""Runs the blocks of a page, and compares their output with the page.

    python -m tests.docs.run_page docs/tutorial.md

A page has a directory, a namespace and an event loop of its own, and its blocks run in order.
Python runs in the namespace: on the loop if it awaits outside of a function, else in another
thread. The preconditions of a page (a mesh that its reader has) are in `given/<page>.py`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import os
import re
import sys
import tempfile
import traceback
from contextlib import AsyncExitStack, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tests.docs.commands import check_command
from tests.docs.documents import LANGUAGES, problem_in
from tests.docs.listed import reason_not_run, reason_only_checked
from tests.docs.pages import (
    ROOT,
    Block,
    Command,
    output_pattern,
    parse_commands,
    parse_page,
    ports_of,
    with_ports,
)
from tests.docs.terminals import TIMEOUT_S, PageError, Terminal
from tests.worlds.ports import free_port

# These commands run in the checkout.
IN_CHECKOUT = re.compile(r"make\b|(\. )?\.venv/|\.ci/|go -C examples")


class PageRun:
    """One page, from its first block to its last."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.module = ModuleType("page")
        self._terminals: dict[str, Terminal] = {}
        self._exported: dict[str, str] = {}
        self._printed = io.StringIO()

    async def run(self, block: Block) -> None:
        """Run a block. Raises its error."""
        match block.kind:
            case "shows":
                await self._terminals[block.argument].wait_for(_pattern(block))
            case "interrupt":
                await self._terminals.pop(block.argument).stop()
            case "file":
                self._write(block)
            case "prints":
                self._compare("the code before", self._printed.getvalue(), _pattern(block))
            case "from":
                _check_quoted(block, ROOT / block.argument)
                await self._run_by_language(block)
            case _:
                await self._run_by_language(block)

    async def _run_by_language(self, block: Block) -> None:
        match block.language:
            case "python":
                await self._run_python(block)
            case "sh" | "console":
                for command in parse_commands(block):
                    await self._run_command(block, command)
            case language if language in LANGUAGES:
                _check_document(block)
            case "go" if block.kind == "from":
                pass
            case _ if reason_not_run(block) is None:
                raise PageError("is neither run nor listed in tests/docs/listed.py")
            case _:
                pass

    def _write(self, block: Block) -> None:
        if block.language in LANGUAGES:
            _check_document(block)
        path = self.directory / block.argument
        path.parent.mkdir(parents=True, exist_ok=True)
        # Renamed, so that the file is never read half written.
        other = path.with_name(f".{path.name}")
        other.write_text(block.text)
        other.rename(path)

    async def _run_python(self, block: Block) -> None:
        # Tracebacks have the line numbers of the page.
        text = "\n" * block.line + block.text
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(text, block.page, "exec", flags=flags, dont_inherit=True)
        self._printed = io.StringIO()
        with redirect_stdout(self._printed):
            if code.co_flags & inspect.CO_COROUTINE:
                await FunctionType(code, vars(self.module))()
            else:
                await asyncio.to_thread(exec, code, vars(self.module))

    async def _run_command(self, block: Block, command: Command) -> None:
        if reason_only_checked(command.text) is not None:
            check_command(command.text)
            return
        if command.text.startswith("export "):
            self._export(command.text)
            return
        directory = ROOT if IN_CHECKOUT.match(command.text) else self.directory
        terminal = await Terminal.start(command.text, directory, self._exported)
        if block.kind == "background":
            self._terminals[block.argument] = terminal
            if command.output is not None:
                await terminal.wait_for(_pattern(block, command.output))
            return
        try:
            code = await terminal.end()
        except TimeoutError:
            await terminal.stop()
            raise PageError(f"{command.text}: has not ended in {TIMEOUT_S} s") from None
        if command.output is None and code:
            raise PageError(f"{command.text}: exit code {code}, and printed:\n{terminal.output}")
        if command.output is not None:
            self._compare(command.text, terminal.output, _pattern(block, command.output))

    def _compare(self, source: str, output: str, wanted: re.Pattern[str]) -> None:
        lines = "".join(f"{line.rstrip()}\n" for line in output.strip("\n").splitlines())
        if not wanted.fullmatch(lines):
            raise PageError(f"{source}\nprints:\n{output}\nwanted pattern:\n{wanted.pattern}")

    def _export(self, command: str) -> None:
        [(name, value)] = re.findall(r"^export (\w+)='?(.*?)'?$", command, re.DOTALL)
        self._exported[name] = os.environ[name] = value

    async def close(self) -> None:
        for terminal in self._terminals.values():
            await terminal.stop()


def _pattern(block: Block, output: str | None = None) -> re.Pattern[str]:
    text = block.text if output is None else output
    return output_pattern(text, has_any_numbers=block.has_any_numbers)


def _check_document(block: Block) -> None:
    if problem := problem_in(block.language, block.text):
        raise PageError(problem)


def _check_quoted(block: Block, path: Path) -> None:
    """Compare without indentation and empty lines."""

    def bare(text: str) -> str:
        return "\n".join(line.strip() for line in text.splitlines() if line.strip())

    if bare(block.text) not in bare(path.read_text()):
        raise PageError(f"is not in {path}")


def given_module(page: str) -> str:
    stem = page.removeprefix("docs/").removesuffix(".md")
    return "tests.docs.given." + re.sub(r"\W", "_", stem).lower()


async def run_page(page: str, text: str, directory: Path) -> None:
    """Run a whole page. Raises PageError with the place of the block."""
    blocks = parse_page(page, text)
    ports = {port: str(free_port()) for port in sorted(ports_of(blocks))}
    blocks = with_ports(blocks, ports)
    async with AsyncExitStack() as stack:
        run = PageRun(directory)
        sys.modules["page"] = run.module
        stack.push_async_callback(run.close)
        if find_spec(given_module(page)) is not None:
            names: dict[str, Any] = vars(run.module)
            # Ports of the page and their replacements.
            names["ports"] = ports
            given = import_module(given_module(page)).given
            await stack.enter_async_context(given(names))
        for block in blocks:
            try:
                await run.run(block)
            except Exception as error:
                raise PageError(f"{block.place}: {type(error).__name__}: {error}") from error


def main() -> int:
    page = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        try:
            asyncio.run(run_page(page, (ROOT / page).read_text(), Path(directory)))
        except PageError as error:
            traceback.print_exception(error.__cause__)
            sys.stderr.write(f"{error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
