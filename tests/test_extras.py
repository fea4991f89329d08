"""What works without the optional packages, and what is said where one is needed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

EXTRAS = {"bench": ("pooch", "psutil", "pydantic", "yaml"), "images": ("PIL",)}
# New versions of typer bring pydantic and cannot read a command line without it.
NOT_OURS = [name for name in ("pydantic",) if any(each.startswith(name) for each in requires("typer") or ())]
OPTIONAL = [package for packages in EXTRAS.values() for package in packages if package not in NOT_OURS]
# Like a missing package: any import of it fails.
WITHOUT = "import sys; sys.modules.update(dict.fromkeys({packages!r})); "
COMMAND = "from osls.app.cli import app; app({words!r})"
PULSE_ON_ARRAYS = """
import numpy as np, osls
from sklearn.ensemble import ExtraTreesClassifier
rng = np.random.default_rng(0)
X, y = rng.normal(size=(90, 2)) + 6 * np.arange(90)[:, None] % 12, np.arange(90) % 2
forest = ExtraTreesClassifier(5, random_state=0)
few = {"n_folds": 2, "rounds": 1, "n_bootstrap": 2}
model = osls.PULSE(source_classifier=forest, discriminator=forest, random_state=0, **few)
assert model.fit(X, y, X_target=X + 1).target_marginal_.shape == (3,)
"""


def run_without(packages, code: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(packages=list(packages)) + code
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def command_without(packages, *words: object) -> subprocess.CompletedProcess[str]:
    return run_without(packages, COMMAND.format(words=[*map(str, words)]))


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    kind = np.array(["a", "b", "c"] * 60)
    frame = pd.DataFrame({"x": np.where(kind == "a", 0, np.where(kind == "b", 8, 16)) + rng.normal(size=180)})
    frame[:90][kind[:90] != "c"].assign(kind=kind[:90][kind[:90] != "c"]).to_csv(
        folder / "old.csv", index=False
    )
    frame[90:].to_csv(folder / "new.csv", index=False)
    return folder


def test_the_extras_are_those_of_the_project():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert len(extras["bench"]) == len(EXTRAS["bench"])
    assert len(extras["images"]) == len(EXTRAS["images"])
    required = " ".join(project["dependencies"])
    assert not [name for name in ("pooch", "psutil", "pydantic", "pyyaml", "pillow") if name in required]
    complete = set(extras) - {"all", "dev", "docs"}
    assert extras["all"] == [f"osls[{','.join(sorted(complete))}]"]
    assert "osls[all]" in extras["dev"]


def test_help_arrays_and_tables_need_none_of_them_and_pictures_name_theirs(tables, tmp_path):
    for where in ("source/cat", "source/dog", "target"):
        (tmp_path / where).mkdir(parents=True)
        for i in range(10):
            Image.new("RGB", (8, 8)).save(tmp_path / where / f"{i}.png")
    words = ["--source", tables / "old.csv", "--target", tables / "new.csv", "--label", "kind", "--fast"]
    adapt = ["adapt", *words, "--out", tmp_path / "run"]
    predict = ["predict", tmp_path / "run" / "model", tables / "new.csv", "--out", tmp_path / "p.csv"]
    pictures = ["adapt", "--source", tmp_path / "source", "--target", tmp_path / "target"]
    pictures += ["--out", tmp_path / "pictures"]
    commands = [[*map(str, command)] for command in (["--help"], adapt, predict)]
    # One process for all: loading torch takes longer than the work. The last command ends it.
    code = "from osls.app.cli import app\nfor words in {!r}: app(words, standalone_mode=False)\n"
    last = COMMAND.format(words=[*map(str, pictures)])
    done = run_without(OPTIONAL, PULSE_ON_ARRAYS + code.format(commands) + last)
    assert done.returncode == 2, done.stderr
    assert "Usage: " in done.stdout
    assert (tmp_path / "run" / "report.html").exists()
    assert (tmp_path / "p.csv").exists()
    assert done.stderr.endswith("osls: this needs the package PIL; run pip install 'osls[images]'.\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("package", [package for package in EXTRAS["bench"] if package in OPTIONAL])
def test_a_study_names_the_extra(package, tmp_path):
    done = command_without([package], "bench", "--draws", 1, "--out", tmp_path / "results")
    assert done.returncode == 2
    assert done.stderr == f"osls: this needs the package {package}; run pip install 'osls[bench]'.\n"


def test_a_broken_package_tells_its_own_story(tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_part")
    code = f"sys.path.insert(0, {str(tmp_path)!r}); from osls._core.extras import require; "
    done = run_without([], code + "require('broken', extra='images')")
    assert done.returncode == 1
    assert done.stderr.endswith("No module named 'no_such_part'\n")
