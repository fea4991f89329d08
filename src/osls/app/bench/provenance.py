"""With which code a row was made, and whether that is still the code of its method."""

from __future__ import annotations

import ast
import json
import subprocess  # nosec B404  # git, with arguments of our own
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import osls
from osls.app.bench.methods import find_method
from osls.app.bench.store import Row

_PACKAGE = Path(osls.__file__).parent
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _git(*arguments: str) -> str | None:
    """Return what git says of the checkout that this package is in; None if it is in none, or git fails."""
    command = ["git", "-C", str(_PACKAGE), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # nosec B603
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def code_version() -> Row:
    """The commit that the package is at, and whether its files differ from it; empty outside a checkout."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return {}
    return {"commit": commit, "dirty": bool(_git("status", "--porcelain", "--", str(_PACKAGE)))}


def is_stale(row: Row) -> bool:
    """Whether the code of a row's method has changed since the row was made.

    A method's code is the file of its class and every file of the package that this imports, directly or not,
    without comments and docstrings. A row that was made with uncommitted changes, or does not say with which
    commit, is stale. Where the history is not at hand (outside a checkout, or in one without the row's
    commit) no row is.
    """
    if not code_version():
        return False
    commit = row.get("commit")
    if commit is None or row.get("dirty"):
        return True
    return _has_changed(json.loads(row["config"])["method"]["name"], commit)


@cache
def _has_changed(method: str, commit: str) -> bool:
    """Whether the code of a method of the package is another than at a commit; not known of other methods."""
    if ":" in method:
        return False
    adapter = find_method(method).adapter
    files = code_of("osls.training.learners" if adapter is None else adapter.__module__)
    names = _git("diff", "--name-only", "--relative", commit, "--", *map(str, sorted(files)))
    return any(
        _code_at(commit, name) != _code_of((_PACKAGE / name).read_text()) for name in (names or "").split()
    )


@cache
def _code_at(commit: str, name: str) -> str | None:
    """Return the code of a file as it was at a commit; None if it was not there."""
    text = _git("show", f"{commit}:./{name}")
    return None if text is None else _code_of(text)


def _code_of(text: str) -> str:
    """Return what Python makes of a file, but for its docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


@cache
def code_of(module: str) -> frozenset[Path]:
    """Return the file of a module and those of the package that it imports, directly or not."""
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _file_of(name)
        if name not in found and path is not None:
            found[name] = path
            waiting += _imports_of(path)
    return frozenset(found.values())


def _file_of(module: str) -> Path | None:
    place = _PACKAGE.joinpath(*module.split(".")[1:])
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


@cache
def _imports_of(path: Path) -> tuple[str, ...]:
    def names() -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("osls."):
                yield node.module
                # What is imported may be a module itself.
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    return tuple(names())
