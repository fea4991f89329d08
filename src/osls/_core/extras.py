"""Optional packages that only some commands need: if one is missing, the error says what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def require(module: str, *, extra: str) -> Any:
    """Import a module of an optional package; if it is missing, name the extra of osls that brings it.

    Examples
    --------
    >>> from osls._core.extras import require
    >>> require("no_such_package", extra="bench")
    Traceback (most recent call last):
    ...
    ImportError: this needs the package no_such_package; run pip install 'osls[bench]'.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        # The package is installed but one of its own imports fails: that error says more than ours.
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ImportError(
            f"this needs the package {package}; run pip install 'osls[{extra}]'.", name=package
        ) from None
