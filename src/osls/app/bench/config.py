"""Strict configuration: YAML without objects or repeated keys, and models that refuse unknown keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from osls._core.names import unknown


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """The safe loader, with an error for a key that comes twice in one mapping."""

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
    """Read a mapping from a file; an error names the line."""
    content = _parse(path, _read_text(path))
    if not isinstance(content, dict):
        raise ValueError(f"{path}: a study is a mapping of keys to values.")
    return content


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileNotFoundError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not in UTF-8; save it as UTF-8 and try again.") from None


def _parse(path: Path, text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # nosec B506  # a subclass of SafeLoader, see above
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        reason = getattr(error, "problem", None) or "is not YAML"
        raise ValueError(f"{path}{line}: {reason}.") from None
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply; a study has a few levels.") from None
    except Exception as error:
        # PyYAML does not catch what int, datetime and its own regular expressions raise on damaged values.
        raise ValueError(f"{path}: a value in it cannot be read ({type(error).__name__}: {error}).") from None


class Strict(BaseModel):
    """An immutable model; an unknown key is an error that suggests the right one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _name_unknown_keys(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for key in given:
                if key not in cls.model_fields:
                    message = unknown("key", key, cls.model_fields)
                    # As an argument: the message must not be read as a template.
                    raise PydanticCustomError("unknown_key", "{message}", {"message": message})
        return given


def explain(error: ValidationError) -> str:
    """Turn a validation error into lines of "path: what is wrong".

    Examples
    --------
    >>> from pydantic import ValidationError
    >>> from osls.app.bench.config import Strict, explain
    >>> class Point(Strict):
    ...     across: int
    >>> try:
    ...     Point.model_validate({"acros": 1})
    ... except ValidationError as error:
    ...     print(explain(error))
    unknown key 'acros'; did you mean 'across'? Known: across.
    """
    lines = []
    for problem in error.errors():
        where = _path(problem["loc"])
        reason = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "literal_error":
            choices = problem["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
            reason = unknown("value", problem["input"], choices)
        lines.append(f"{where}: {reason}" if where else reason)
    return "\n".join(dict.fromkeys(lines))


def _path(location: tuple[int | str, ...]) -> str:
    """Write ("data", 0, "novel") as data[0].novel."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def config_key(config: Mapping[str, Any]) -> str:
    """Return the hash that identifies a run: the same config is the same run, whatever it is called."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
