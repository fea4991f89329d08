"""Claims: files that say who is at work on what, so that two processes never do the same thing twice.

A claim comes into being whole, and only if it is not there: of two processes exactly one gets it. Its owner
touches it while at work. A claim is stale if its process is gone (same machine) or it was not touched for a
while (another machine); whoever finds it stale may take it over, one at a time under a lock.
"""

from __future__ import annotations

import json
import os
import platform
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Claim"]

# Seconds without a touch after which the claim of another machine is stale. Owners touch every few seconds.
STALE_AFTER = 120.0
_CLOCK_SLACK = 5.0


@dataclass(frozen=True)
class Claim:
    """A claim on a file name, ours once :meth:`acquire` has returned True; it can be released at any time."""

    path: Path
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def acquire(self) -> bool:
        """Get it, if need be from a process that is gone; False if somebody is at work on it."""
        if self._create():
            return True
        if not _is_stale(self.path):
            return False
        with _lock(self.path.with_name(".lock")):
            # Somebody may have taken it over while we waited.
            if _is_stale(self.path):
                self.path.unlink(missing_ok=True)
            return self._create()

    def is_held(self) -> bool:
        """Whether it is ours, and nobody has taken it over."""
        return _read(self.path).get("token") == self.token

    def touch(self) -> None:
        """Show that we are still at work."""
        if self.is_held():
            os.utime(self.path)

    def release(self) -> None:
        """Give it up; nothing happens if it is not ours."""
        if self.is_held():
            self.path.unlink(missing_ok=True)

    def _create(self) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        owner = {"token": self.token, "machine": _machine(), "pid": os.getpid(), "since": _since()}
        draft = self.path.with_name(f".{self.token}")
        try:
            draft.write_text(json.dumps(owner))
            # Unlike O_EXCL and a write, a link has no moment in which the file is there but empty.
            os.link(draft, self.path)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        return True


def _is_stale(path: Path) -> bool:
    try:
        silent = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        # Given up, and perhaps claimed anew in this moment: nothing to take over.
        return False
    owner = _read(path)
    if owner.get("machine") != _machine():
        return silent > STALE_AFTER
    try:
        # A process of the same number may be another one, started later. Clocks are set by a second or two.
        since = float(psutil.Process(owner["pid"]).create_time())
        return abs(since - float(owner["since"])) > _CLOCK_SLACK
    except psutil.NoSuchProcess:
        return True


def _read(path: Path) -> dict[str, Any]:
    """Read who holds a claim; nothing for a file that is gone or not yet written."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return content if isinstance(content, dict) else {}


def _since() -> float:
    return float(psutil.Process().create_time())


@cache
def _machine() -> str:
    """Name what process numbers are unique in: the host, and on Linux its namespace (a container)."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{platform.node()} {space}"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:
        raise RuntimeError(
            f"cannot take over a claim on this system; delete {path.parent} by hand."
        ) from None
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
