"""Recipes for other places: they say what pyproject.toml and the Makefile say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_conda_recipe_has_the_requirements_of_the_package():
    text = (ROOT / "packaging/conda/meta.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(
        re.sub(r"{%.*?%}", "", text).replace("{{ version }}", "0").replace("{{ PYTHON }}", "")
    )
    run = {entry.replace(" ", "").replace("pytorch", "torch") for entry in recipe["requirements"]["run"]}
    assert run == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}
    assert f'version = "{PROJECT["version"]}"' in text
    assert recipe["build"]["entry_points"] == [f"osls = {PROJECT['scripts']['osls']}"]


def test_the_workflow_runs_targets_of_the_makefile():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    called = {
        step["run"].split()[1]
        for job in jobs.values()
        for step in job["steps"]
        if "make" in step.get("run", "")
    }
    assert called == {"lint", "test", "test-minimum", "docs"}
    assert called <= targets
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]


def test_the_image_is_small_and_runs_without_rights():
    lines = (ROOT / "packaging/Dockerfile").read_text(encoding="utf-8").splitlines()
    stages = [line for line in lines if line.startswith("FROM")]
    assert len(stages) == 2
    assert all("-slim" in stage for stage in stages)
    last = lines[lines.index(stages[1]) :]
    assert "USER osls" in last
    assert last.index("USER osls") < last.index('ENTRYPOINT ["osls"]')
    extras = re.search(r"\.\[([\w,]+)\]", "\n".join(lines)).group(1).split(",")
    assert set(extras) <= set(PROJECT["optional-dependencies"])
    # What is copied is there.
    for name in re.findall(r"^COPY ((?:[\w./-]+ )+)\S+$", "\n".join(lines), re.MULTILINE):
        assert all((ROOT / each).exists() for each in name.split())
