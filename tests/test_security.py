"""No code from data: what the source may not call, and what happens to files that try."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest
import yaml

import osls
from osls.app.bench.config import read_yaml
from osls.app.files import InputError, read_table

SOURCE = Path(osls.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
# osls.testing unpickles what it has pickled itself, to see that adapters can be.
OWN_PICKLES = {SOURCE / "testing" / "interface.py", SOURCE / "testing" / "contracts.py"}


def name_of(node: ast.expr) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def calls(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            options = {word.arg: word.value for word in node.keywords}
            yield name_of(node.func), options, f"{path.name}:{node.lineno}"


def constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_there_is_a_source_to_look_at():
    assert len(MODULES) > 100


def test_nothing_unpickles():
    users = [
        path
        for path in MODULES
        if {"pickle", "dill", "cloudpickle", "shelve", "marshal"} & set(imports(path))
    ]
    assert set(users) == OWN_PICKLES
    for path in MODULES:
        for name, _, where in calls(path):
            assert name not in ("joblib.load", "pd.read_pickle", "pandas.read_pickle", "eval", "exec"), where
            assert not name.startswith("pickle.load") or path in OWN_PICKLES, where


def test_arrays_and_weights_are_read_without_pickle():
    found = []
    for path in MODULES:
        for name, options, where in calls(path):
            if name in ("np.load", "numpy.load"):
                assert constant(options.get("allow_pickle")) is False, where
                found.append(name)
            elif name == "torch.load":
                assert constant(options.get("weights_only")) is True, where
                found.append(name)
    assert {"np.load", "torch.load"} <= set(found)


def test_yaml_is_read_by_safe_loaders_and_no_shell_is_started():
    for path in MODULES:
        for name, options, where in calls(path):
            if name == "yaml.load":
                assert name_of(options["Loader"]) == "_Loader", where
            assert name not in ("yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen"), where
            assert constant(options.get("shell")) is not True, where
    from osls.app.bench.config import _Loader

    assert issubclass(_Loader, yaml.SafeLoader)


def test_archives_are_unpacked_in_one_place_which_filters_what_tar_files_hold():
    for path in MODULES:
        for name, options, where in calls(path):
            if name.endswith((".extractall", ".extract")):
                assert path.name == "download.py", f"{where}: use osls.datasets.download"
                assert name == "packed.extractall" or constant(options["filter"]) == "data", where


def test_templates_never_mark_values_as_safe():
    templates = list((SOURCE / "app" / "report" / "templates").glob("*"))
    assert templates
    for path in templates:
        text = path.read_text(encoding="utf-8")
        assert "|safe" not in text.replace(" ", ""), path
        assert "autoescape false" not in text, path


class Touch:
    """Unpickling this makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_objects_in_arrays_are_refused(tmp_path):
    trap = tmp_path / "touched"
    np.savez(tmp_path / "a.npz", X=np.array([[Touch(trap)]], dtype=object))
    with pytest.raises(InputError, match="could run code"):
        read_table(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Touch(trap)))
    with pytest.raises(InputError):
        read_table(tmp_path / "b.npz")
    assert not trap.exists()


def test_objects_in_studies_are_refused(tmp_path):
    trap = tmp_path / "touched"
    (tmp_path / "s.yml").write_text(f"name: !!python/object/apply:pathlib.Path.touch [{trap}]\n")
    with pytest.raises(ValueError, match=r"s\.yml, line 1"):
        read_yaml(tmp_path / "s.yml")
    assert not trap.exists()
