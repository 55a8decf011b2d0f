"""The commands as docs/reference/cli.md lists them: `python -m tests.unit.cli.reference` writes them into the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from astyqueue.cli import main
from astyqueue.cli.config import PREFIX

PAGE: Final = Path(__file__).parents[3] / "docs/reference/cli.md"
#: What follows this line is written here; what comes before is written by hand.
MARK: Final = "## Commands\n"
#: Options of most commands, which the page explains once.
COMMON: Final = frozenset({"url", "as_json", "verbose"})
#: The commands whose page lists for each option the variable and the key that set it.
ELSEWHERE: Final = ("astyqueue worker",)


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, as it is typed, in the order of help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        elif command is not None:
            yield " ".join(("astyqueue", *path, name)), command


def listed() -> str:
    """All commands, from the mark on."""
    return MARK + "".join(f"\n{_section(typed, command)}" for typed, command in commands(main))


def _section(typed: str, command: click.Command) -> str:
    context = click.Context(command, info_name=typed)
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"### {typed}\n", f"    {typed} {usage}\n", *_paragraphs(command.help or ""), _options(command, context)]
    if typed in ELSEWHERE:
        parts.append(_elsewhere(typed, command))
    if command.epilog:
        parts.append(f"```sh\n{_plain(command.epilog)}\n```\n")
    return "\n".join(parts)


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help text; one that keeps its lines is a block of code."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield f"```text\n{_plain(paragraph)}\n```\n" if "\b" in paragraph else f"{' '.join(paragraph.split())}\n"


def _plain(block: str) -> str:
    lines = block.replace("\b", "").strip("\n").splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[indent:] for line in lines).strip()


def _options(command: click.Command, context: click.Context) -> str:
    """A table of the options that are this command's own, and the names of those that most have."""
    options = [option for option in command.params if isinstance(option, click.Option)]
    rows = [row for option in options if option.name not in COMMON and (row := _row(option, context))]
    common = ", ".join(f"`{option.opts[-1]}`" for option in options if option.name in COMMON)
    table = ["| option | meaning |", "|---|---|", *rows, ""] if rows else []
    return "\n".join([*table, f"{'And' if rows else 'Options:'} {common}.", ""])


def _elsewhere(typed: str, command: click.Command) -> str:
    """A table of where else each option can be set."""
    name = typed.removeprefix("astyqueue ")
    rows = [
        f"| `{flag(option)}` | {' or '.join(f'`{each}`' for each in variables(name, option))} | `{key(option)}` |"
        for option in command.params
        if isinstance(option, click.Option) and option.name != "verbose"
    ]
    rows[:0] = [
        f"| `{argument.make_metavar(click.Context(command))}` | `{argument.envvar}` | `{argument.name}` |"
        for argument in command.params
        if isinstance(argument, click.Argument) and argument.envvar
    ]
    head = f"| option | in the environment | in `./astyqueue.toml`, under `[{name}]` |"
    return "\n".join([head, "|---|---|---|", *rows, ""])


def flag(option: click.Option) -> str:
    """An option as it is typed in full."""
    return next(text for text in option.opts if text.startswith("--"))


def key(option: click.Option) -> str:
    """The key of an option in a file."""
    return flag(option).removeprefix("--")


def variables(command: str, option: click.Option) -> list[str]:
    """The variables that set an option, the one that counts first."""
    common = [option.envvar] if isinstance(option.envvar, str) else []
    return [*common, f"{PREFIX}_{command}_{key(option)}".replace("-", "_").upper()]


def _row(option: click.Option, context: click.Context) -> str:
    """An option as its help describes it, as a row of a table."""
    record = option.get_help_record(context)
    if record is None:
        return ""
    written, meaning = (text.replace("|", "\\|") for text in record)
    return f"| `{written}` | {' '.join(meaning.split())} |"


if __name__ == "__main__":
    head = PAGE.read_text().partition(MARK)[0]
    PAGE.write_text(head + listed())
