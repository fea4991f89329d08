"""Short names of the classes that a package exports, and suggestions for names that are not known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from types import ModuleType
from typing import Any


def nearest(name: object, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" with the known name that is most like ``name``, or nothing.

    Examples
    --------
    >>> from osls._core.names import nearest
    >>> nearest("puls", ["pulse", "k-pu"])
    " Did you mean 'pulse'?"
    >>> nearest("fast", ["balanced", "quick", "best"])
    ''
    """
    near = _most_like(name, known)
    return f" Did you mean {near[0]!r}?" if near else ""


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return a message: the name is not known, the nearest known name, and all known names.

    Examples
    --------
    >>> from osls._core.names import unknown
    >>> unknown("method", "puls", ["pulse", "k-pu"])
    "unknown method 'puls'; did you mean 'pulse'? Known: k-pu, pulse."
    """
    names = sorted(known)
    near = _most_like(name, names)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}."


def _most_like(name: object, known: Iterable[str]) -> list[str]:
    """Return the known name that is most like ``name``, upper and lower case alike, or that it begins."""
    if not isinstance(name, str):
        return []
    spelled = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    begun = [each for each in spelled if len(name) >= 3 and each.startswith(name.lower())]
    return [spelled[each] for each in (near or begun)[:1]]


def exported_classes(package: ModuleType, base: type) -> dict[str, type[Any]]:
    """Return the concrete subclasses of ``base`` that a package exports, by their short names.

    That is how the benchmark and the tests find a new baseline or mixture estimator. A short name is the
    class's ``short_name`` or, without one, its name in lower case with dashes between the words.

    Examples
    --------
    >>> from osls import mixture
    >>> from osls._core.names import exported_classes
    >>> list(exported_classes(mixture, mixture.MixtureEstimator))
    ['bbe', 'dedpul', 'elkan-noto', 'regroup', 'subsample']
    """
    exported = [getattr(package, name) for name in package.__all__]
    chosen = [each for each in exported if isinstance(each, type) and issubclass(each, base)]
    concrete = [
        each for each in chosen if not getattr(each, "__abstractmethods__", None) and each is not base
    ]
    return {vars(each).get("short_name") or _in_lower_case(each.__name__): each for each in concrete}


def _in_lower_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
