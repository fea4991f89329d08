"""What osls is installed from: requirements.txt has the whole of it, pinned and with hashes."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def entries(text: str) -> list[tuple[Requirement, list[str]]]:
    """Requirements with their hashes."""
    found = []
    for entry in re.split(r"\n(?=\S)", text.replace("\\\n", "\n").strip()):
        line, *rest = entry.splitlines()
        found.append(
            (Requirement(line.strip()), re.findall(r"--hash=sha256:([0-9a-f]{64})", "\n".join(rest)))
        )
    return found


LOCKED = entries((ROOT / "requirements.txt").read_text(encoding="utf-8"))
PINS = {
    canonicalize_name(name): version
    for name, version in re.findall(
        r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
}
# What is installed here, by name.
VERSIONS = {
    canonicalize_name(requirement.name): str(requirement.specifier).removeprefix("==")
    for requirement, _ in LOCKED
    if requirement.marker is None or requirement.marker.evaluate()
}


def runtime() -> list[Requirement]:
    """The requirements of the package and of the extras in "all"."""
    extras = PROJECT["optional-dependencies"]
    own = re.search(r"\[(.*)\]", extras["all"][0]).group(1).split(",")
    texts = [*PROJECT["dependencies"], *(text for extra in own for text in extras[extra])]
    return [requirement for requirement in map(Requirement, texts) if requirement.name != "osls"]


def needed(requirement: Requirement) -> list[Requirement]:
    """What a package needs for the extras that are asked of it, if the locked version is installed here."""
    # Tools of development may ask for another version; what that needs is not what the locked one needs.
    if metadata.version(requirement.name).partition("+")[0] != VERSIONS[canonicalize_name(requirement.name)]:
        return []
    environments = [default_environment() | {"extra": extra} for extra in (*requirement.extras, "")]
    return [
        each
        for each in map(Requirement, metadata.requires(requirement.name) or ())
        if each.marker is None or any(each.marker.evaluate(environment) for environment in environments)
    ]


def test_every_file_has_a_hash_and_every_version_is_exact():
    assert len(LOCKED) > 40
    for requirement, hashes in LOCKED:
        assert hashes, requirement.name
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement.name


def test_no_address_of_an_index_is_kept():
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text


@pytest.mark.parametrize("requirement", runtime(), ids=str)
def test_requirements_of_the_package_are_locked(requirement):
    version = VERSIONS[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(version, prereleases=True)


def test_the_pins_are_those_of_the_constraints():
    both = {name: (VERSIONS[name], PINS[name]) for name in VERSIONS.keys() & PINS.keys()}
    assert len(both) > 20
    assert {name: pair for name, pair in both.items() if pair[0] != pair[1]} == {}


def test_so_is_all_that_they_need_in_turn():
    open_, seen = runtime(), set[str]()
    while open_:
        requirement = open_.pop()
        name = canonicalize_name(requirement.name)
        asked = f"{name}[{','.join(sorted(requirement.extras))}]"
        if asked in seen:
            continue
        seen.add(asked)
        assert name in VERSIONS, f"{name} is missing from requirements.txt; run make lock"
        assert requirement.specifier.contains(VERSIONS[name], prereleases=True), name
        open_ += needed(requirement)
    assert len(seen) > 60


def test_a_requirement_without_a_hash_would_be_noticed():
    (first, hashes), (second, none) = entries(
        "a==1 \\\n    --hash=sha256:" + "0" * 64 + "\nb==2 ; os_name == 'nt'\n"
    )
    assert (first.name, len(hashes), second.name, none) == ("a", 1, "b", [])
