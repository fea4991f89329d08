"""Measure the house: files, rooms, imports, sizes. `make stats` prints it beside the limits.

A room is a package or module directly inside ``src/osls``. A code line is one that is neither blank, comment
nor docstring. A lazy import is an import of our own inside a function.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "osls"
# Basenames that stand in several rooms on purpose: the contract of each family.
MIRRORED = {"__init__", "base"}


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str, packages: set[str]) -> str:
    """Return the package of a module; a module beside packages (``osls.pulse``) is a room of its own."""
    parent = module if module in packages else module.rpartition(".")[0]
    beside_packages = any(other.rpartition(".")[0] == parent for other in packages)
    return module if beside_packages else parent


def trees() -> dict[str, ast.Module]:
    return {module_of(path): _parsed(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def own_imports(tree: ast.AST, lazy: bool = False) -> Iterator[tuple[str, list[str], bool]]:
    """Yield (module, names, whether inside a function) of the imports of osls; not those for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "osls":
            yield node.module or "", [alias.name for alias in node.names], lazy
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "osls":
                    yield alias.name, [], lazy
        else:
            inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from own_imports(node, inside)


def package_graph() -> dict[str, set[str]]:
    """Return package -> packages that it imports from, lazy imports included."""
    packages = {module_of(path) for path in SOURCE.rglob("__init__.py")}
    modules = set(trees())
    graph: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees().items():
        here = package_of(module, packages)
        for target, names, _ in own_imports(tree):
            for full in [f"{target}.{name}" for name in names] or [target]:
                there = package_of(full if full in modules else target, packages)
                if there != here:
                    graph[here].add(there)
    return graph


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return groups of packages of which each imports, at some remove, every other."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for following in graph.get(waiting.pop(), ()):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return seen

    reached = {package: reach(package) for package in graph}
    groups = {
        frozenset(other for other in reached[package] if package in reached.get(other, ()))
        for package in graph
        if package in reached[package]
    }
    return [set(group) for group in groups]


def private_imports() -> list[str]:
    """Return imports of a private name, or of a private module, from another package; _core is for all."""
    packages = {module_of(path) for path in SOURCE.rglob("__init__.py")}
    found = []
    for module, tree in trees().items():
        here = package_of(module, packages)
        for target, names, _ in own_imports(tree):
            there = target if target in packages else target.rpartition(".")[0]
            parts = [part for part in target.split(".")[1:] if part != "_core"]
            hidden = [name for name in [*names, *parts] if name.startswith("_") and name != "__version__"]
            if hidden and there != here:
                found.append(f"{module} imports {', '.join(hidden)} of {target}")
    return found


def lazy_imports() -> list[str]:
    return [
        f"{module} -> {target}"
        for module, tree in trees().items()
        for target, _, lazy in own_imports(tree)
        if lazy
    ]


def is_text(node: ast.stmt) -> bool:
    """Whether a statement is a string and nothing else, as a docstring is."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def code_lines(text: str) -> int:
    """Count lines with code; docstrings are no code."""
    documentation: set[int] = set()
    for node in ast.walk(_parsed(text)):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
            first = body[0]
            if is_text(first):
                documentation.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documentation)


def function_lengths() -> list[int]:
    """Return the lengths of all functions in lines, without their docstrings."""
    lengths = []
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                first = node.body[0]
                if is_text(first):
                    length -= (first.end_lineno or first.lineno) - first.lineno + 1
                lengths.append(length)
    return sorted(lengths)


def rooms() -> list[str]:
    inside = [path for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    return sorted(path.stem for path in inside if path.name != "__init__.py")


def repeated_names() -> list[str]:
    counts = Counter(path.stem for path in SOURCE.rglob("*.py"))
    return sorted(name for name, count in counts.items() if count > 1 and name not in MIRRORED)


def total_lines(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


def quantile(values: list[int], share: float) -> int:
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0


def measure() -> list[tuple[str, float, str, bool]]:
    """Return (what, figure, limit, whether it is kept)."""
    lengths, files = function_lengths(), list(SOURCE.rglob("*.py"))
    code = sum(code_lines(path.read_text()) for path in files)
    ratio = total_lines(ROOT / "tests") / total_lines(SOURCE)
    graph = package_graph()
    graph["osls.base"].discard("osls.persist")  # model.save, the one door upwards (pyproject.toml says why)
    figures: list[tuple[str, float, str, bool]] = []

    def add(what: str, figure: float, limit: float, *, least: bool = False) -> None:
        kept = figure >= limit if least else figure <= limit
        figures.append((what, round(figure, 2), f"{'>=' if least else '<='} {limit}", kept))

    add("files in src", len(files), 150)
    add("top-level rooms", len(rooms()), 19)
    add("package cycles", len(cycles(graph)), 0)
    add("private imports across packages", len(private_imports()), 0)
    add("lazy imports of our own", len(lazy_imports()), 15)
    add("basenames that repeat", len(repeated_names()), 0)
    add("code lines", code, 16_000)
    add("function p90", quantile(lengths, 0.9), 20)
    add("tests : src, lines", ratio, 0.6, least=True)
    figures.append(("function p50 / max", quantile(lengths, 0.5), f"max {max(lengths, default=0)}", True))
    return figures


def main() -> int:
    figures = measure()
    for what, figure, limit, kept in figures:
        print(f"{what:34}{figure:>10g}   {limit:12}{'' if kept else 'NOT KEPT'}")
    for problem in [*private_imports(), *(f"repeated: {name}" for name in repeated_names())]:
        print(f"  {problem}")
    print("lazy imports:", *lazy_imports(), sep="\n  ")
    return 0 if all(kept for *_, kept in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
