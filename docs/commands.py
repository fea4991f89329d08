"""The reference of the command line, read off the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any, Literal, get_args, get_origin

from typer.main import get_command

__all__ = ["command_reference", "walk"]


def walk() -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name."""
    from osls.app.cli import app

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for child, sub in getattr(command, "commands", {}).items():
            yield from below(f"{name} {child}", sub)

    yield from below("osls", get_command(app))


def command_reference() -> str:
    """Describe every command, its arguments and its options."""
    return "\n\n".join(_describe(name, command) for name, command in walk() if _is_shown(command))


def _is_shown(command: Any) -> bool:
    return not getattr(command, "commands", None) or getattr(command, "invoke_without_command", False)


def _describe(name: str, command: Any) -> str:
    arguments = [_argument(p) for p in command.params if _is_argument(p)]
    usage = " ".join([name, "[OPTIONS]", *arguments])
    parts = [f"## `{name}`", cleandoc(command.help or ""), f"```text\n{usage}\n```"]
    rows = [_row(p) for p in command.params if p.name != "help"]
    return "\n\n".join([*parts, "\n".join(f"{names}\n:   {words}\n" for names, words in rows)])


def _is_argument(parameter: Any) -> bool:
    return not any(option.startswith("-") for option in parameter.opts)


def _argument(parameter: Any) -> str:
    words = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return words if parameter.required else f"[{words}]"


def _row(parameter: Any) -> tuple[str, str]:
    names = parameter.name.upper() if _is_argument(parameter) else "`, `".join(parameter.opts)
    words = parameter.help or ""
    choices = _choices(parameter)
    if choices:
        words += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
    if parameter.required:
        words += " *Required.*"
    elif parameter.default not in (None, "", ()) and not isinstance(parameter.default, bool):
        words += f" *Default: {parameter.default}.*"
    return f"`{names}`", words


def _choices(parameter: Any) -> tuple[str, ...]:
    """Values of an option that takes one of a few words."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    return get_args(annotation) if get_origin(annotation) is Literal else ()
