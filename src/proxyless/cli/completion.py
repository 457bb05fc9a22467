"""`proxyless completion bash|zsh|fish`: prints a script that completes commands and options.

source <(proxyless completion bash)                                     # in ~/.bashrc
proxyless completion zsh > "${fpath[1]}/_proxyless"
proxyless completion fish > ~/.config/fish/completions/proxyless.fish

The script is made from the parsers of all commands, and runs nothing of this package.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

EXIT_CODES: Final = {0: "the script is printed", 2: "usage error"}


@frozen
class CompletedOption:
    """One option of a command."""

    # Such as `-o` and `--output`.
    names: tuple[str, ...]
    help: str
    takes_value: bool
    # Values, if there is a list of them.
    choices: tuple[str, ...] = ()
    takes_path: bool = False


@frozen
class CompletedCommand:
    """One command: its options, and the choices of its first argument."""

    summary: str
    options: tuple[CompletedOption, ...]
    choices: tuple[str, ...] = ()
    takes_paths: bool = False


def fill_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print a script that completes commands and options in a shell."
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="the shell")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    print(_SCRIPTS[parsed.shell](describe_commands()), end="")
    return 0


def describe_commands() -> dict[str, CompletedCommand]:
    """All commands, from their parsers."""
    # Here, as that package imports this module.
    from proxyless.cli import COMMANDS  # noqa: PLC0415

    found = {}
    for name, summary in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=name)
        import_module(f"proxyless.cli.{name}").fill_parser(parser)
        # argparse has no other way to list the arguments of a parser.
        found[name] = _describe(summary, parser._actions)  # noqa: SLF001
    return found


def _describe(summary: str, actions: Sequence[argparse.Action]) -> CompletedCommand:
    options = tuple(
        CompletedOption(
            tuple(action.option_strings),
            _show_help(action),
            action.nargs != 0,
            tuple(map(str, action.choices or ())),
            _takes_path(action),
        )
        for action in actions
        if action.option_strings
    )
    arguments = [action for action in actions if not action.option_strings]
    choices = next((tuple(map(str, each.choices)) for each in arguments if each.choices), ())
    return CompletedCommand(summary, options, choices, any(map(_takes_path, arguments)))


def _show_help(action: argparse.Action) -> str:
    # The end, such as the default, is for `--help`.
    return (action.help or "").partition(" (default")[0].partition(";")[0]


def _takes_path(action: argparse.Action) -> bool:
    return action.type is Path or action.metavar in {"FILE", "PATH", "DIR"}


def _make_bash(commands: Mapping[str, CompletedCommand]) -> str:
    cases = "\n".join(_bash_case(name, command) for name, command in commands.items())
    return _BASH.format(commands=" ".join(commands), cases=cases)


def _bash_case(name: str, command: CompletedCommand) -> str:
    names = [each for option in command.options for each in option.names]
    lines = [
        f"{name})",
        '  case "$before" in',
        *(f"    {_bash_option(option)}" for option in command.options if option.takes_value),
        "  esac",
        f"  options='{' '.join(names)}'",
        f"  {_BASH_FILES if command.takes_paths else _bash_words(command.choices)}",
        "  ;;",
    ]
    return "\n".join(f"    {line}" for line in lines)


def _bash_option(option: CompletedOption) -> str:
    values = _BASH_FILES if option.takes_path else _bash_words(option.choices)
    return f"{'|'.join(option.names)}) {values}; return;;"


def _bash_words(words: Sequence[str]) -> str:
    return f"COMPREPLY=($(compgen -W '{' '.join(words)}' -- \"$word\"))"


_BASH_FILES: Final = 'compopt -o filenames; COMPREPLY=($(compgen -f -- "$word"))'
_BASH: Final = """\
# Completion of proxyless for bash.
_proxyless() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" options=''
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{commands} --help --version' -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  if [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  fi
}}
complete -F _proxyless proxyless
"""


def _make_zsh(commands: Mapping[str, CompletedCommand]) -> str:
    listed = "\n".join(
        f"    {_zsh_quote(f'{name}:{command.summary}')}" for name, command in commands.items()
    )
    cases = []
    for name, command in commands.items():
        lines = [
            _zsh_quote(f"{each}[{_zsh_escape(option.help)}]{_zsh_value(option)}")
            for option in command.options
            for each in option.names
        ]
        if command.choices:
            lines.append(_zsh_quote(f"1:argument:({' '.join(command.choices)})"))
        elif command.takes_paths:
            lines.append(_zsh_quote("*:file:_files"))
        arguments = " \\\n        ".join(lines)
        cases.append(f"    {name})\n      _arguments \\\n        {arguments}\n      ;;")
    return _ZSH.format(listed=listed, cases="\n".join(cases))


def _zsh_value(option: CompletedOption) -> str:
    if not option.takes_value:
        return ""
    if option.choices:
        return f":value:({' '.join(option.choices)})"
    return ":file:_files" if option.takes_path else ":value:"


def _zsh_escape(text: str) -> str:
    return text.replace("[", "(").replace("]", ")").replace(":", "\\:")


def _zsh_quote(text: str) -> str:
    quoted = text.replace("'", "'\\''")
    return f"'{quoted}'"


_ZSH: Final = """\
#compdef proxyless
# Completion of proxyless for zsh.
_proxyless() {{
  local -a commands=(
{listed}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{cases}
  esac
}}
if [ "$funcstack[1]" = _proxyless ]; then
  _proxyless "$@"
else
  compdef _proxyless proxyless
fi
"""


def _make_fish(commands: Mapping[str, CompletedCommand]) -> str:
    lines = ["# Completion of proxyless for fish.", "complete -c proxyless -f"]
    for name, command in commands.items():
        summary = _fish_quote(command.summary)
        lines.append(f"complete -c proxyless -n __fish_use_subcommand -a {name} -d {summary}")
        begin = f"complete -c proxyless -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{begin} {_fish_option(option)}" for option in command.options]
        if command.choices:
            lines.append(f"{begin} -a {_fish_quote(' '.join(command.choices))}")
        elif command.takes_paths:
            lines.append(f"{begin} -F")
    return "\n".join([*lines, ""])


def _fish_option(option: CompletedOption) -> str:
    parts = [
        f"-l {each[2:]}" if each.startswith("--") else f"-s {each[1:]}" for each in option.names
    ]
    if option.takes_value:
        parts.append("-r")
    if option.choices:
        parts.append(f"-a {_fish_quote(' '.join(option.choices))}")
    elif option.takes_path:
        parts.append("-F")
    return " ".join([*parts, "-d", _fish_quote(option.help)])


def _fish_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: Final[Mapping[str, Callable[[Mapping[str, CompletedCommand]], str]]] = {
    "bash": _make_bash,
    "zsh": _make_zsh,
    "fish": _make_fish,
}
