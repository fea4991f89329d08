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

    A method's code is the file of its class and every file of the package that this imports, directly or not.
    A row that was made with uncommitted changes, or does not say with which commit, is stale. Where the
    history is not at hand (outside a checkout, or in one without the row's commit) no row is.
    """
    if not code_version():
        return False
    commit = row.get("commit")
    if commit is None or row.get("dirty"):
        return True
    changed = _last_change(json.loads(row["config"])["method"]["name"])
    if changed is None or _git("cat-file", "-e", f"{commit}^{{commit}}") is None:
        return False
    return not _is_ancestor(changed, commit)


@cache
def _is_ancestor(earlier: str, later: str) -> bool:
    return _git("merge-base", "--is-ancestor", earlier, later) is not None


@cache
def _last_change(method: str) -> str | None:
    """The last commit that changed the code of a method of the package; None for methods from elsewhere."""
    if ":" in method:
        return None
    adapter = find_method(method).adapter
    module = "osls.training.learners" if adapter is None else adapter.__module__
    return _git("log", "-1", "--format=%H", "--", *map(str, sorted(code_of(module)))) or None


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
