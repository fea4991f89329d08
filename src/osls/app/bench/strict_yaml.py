"""YAML with the surprises taken out: no objects, no key twice, errors with the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

__all__ = ["read_yaml"]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """The safe loader; a key that comes twice in one mapping is an error, not the last one's win."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in getattr(node, "value", []):
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key_node.value!r} is there twice", key_node.start_mark
                )
            seen.add(key_node.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping from a file, or say which line is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileNotFoundError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not in UTF-8; save it as UTF-8 and try again.") from None
    try:
        content = yaml.load(text, Loader=_Loader)  # nosec B506  # a subclass of SafeLoader, see above
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        reason = getattr(error, "problem", None) or "is not YAML"
        raise ValueError(f"{path}{line}: {reason}.") from None
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply; a study has a few levels.") from None
    except Exception as error:
        # PyYAML lets through what int, datetime and its own regular expressions raise on half a value.
        raise ValueError(f"{path}: a value in it cannot be read ({type(error).__name__}: {error}).") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: a study is a mapping of keys to values.")
    return content
