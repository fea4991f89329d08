"""The base of everything that a study file can say: unknown keys are errors that suggest the right one."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from osls._core.names import unknown

__all__ = ["Strict", "explain"]


class Strict(BaseModel):
    """A model that can be neither changed nor given a key it does not know."""

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
    >>> from osls.app.bench.models import Strict, explain
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
