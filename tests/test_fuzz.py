"""Whatever is in a file, reading it ends with a table, a study or a model, or with one clean sentence.

Files of random bytes, of almost the right shape, and sound ones with a few bytes changed. ``make fuzz`` runs
each of these ten thousand times.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from conftest import examples
from osls.app.bench.study import Study, load_study, parse_study
from osls.app.files import InputError, read_table
from osls.app.report.charts import DrawRow, ShareRow, count_chart, draw_chart, share_chart
from osls.mixture import BBE
from osls.monitor import Monitor
from osls.persist import ModelError, load, save

# What means something in the formats at hand, more often than chance would have it.
csv_pieces = st.sampled_from(
    [
        ",",
        ";",
        "\t",
        "|",
        '"',
        '""',
        "\n",
        "\r\n",
        "\r",
        " ",
        "a",
        "1",
        "0.5",
        "é",
        "NA",
        "=",
        "1e999",
        "\ufeff",
    ]
)
csv_texts = st.lists(csv_pieces, max_size=40).map("".join).map(str.encode)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
json_texts = st.lists(json_values, max_size=4).map(lambda rows: "\n".join(map(json.dumps, rows)).encode())
changes = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def demand_table_or_sentence(path, data):
    path.write_bytes(data)
    try:
        frame = read_table(path)
    except InputError as error:
        message = str(error)
    else:
        assert isinstance(frame, pd.DataFrame)
        assert isinstance(frame.to_csv(), str)  # every value can be looked at
        return
    assert message.startswith(str(path))
    assert "\n" not in message
    assert message.endswith((".", "?"))


def changed(data, edits):
    """The bytes with some of them replaced, at places given as parts of the whole."""
    found = bytearray(data)
    for place, value in edits:
        found[int(place * len(found))] = value
    return bytes(found)


class TestTables:
    @pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".npz"])
    @examples(25, cases=6)
    @given(data=st.binary(max_size=80))
    def test_random_bytes(self, suffix, data, scratch):
        demand_table_or_sentence(scratch / f"a{suffix}", data)

    @pytest.mark.parametrize("suffix", [".csv", ".tsv"])
    @examples(150, cases=2)
    @given(data=csv_texts)
    def test_almost_csv(self, suffix, data, scratch):
        demand_table_or_sentence(scratch / f"b{suffix}", data)

    @examples(100)
    @given(data=st.one_of(json_texts, json_values.map(lambda value: json.dumps(value).encode())))
    def test_almost_json_lines(self, data, scratch):
        demand_table_or_sentence(scratch / "c.jsonl", data)

    @pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".npz", ".jsonl"])
    @examples(40, cases=5)
    @given(edits=changes)
    def test_sound_files_with_bytes_changed(self, suffix, edits, sound_tables, scratch):
        demand_table_or_sentence(scratch / f"d{suffix}", changed(sound_tables[suffix], edits))

    @pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".npz", ".jsonl"])
    @examples(15, cases=5)
    @given(part=st.floats(0, 1))
    def test_sound_files_cut_short(self, suffix, part, sound_tables, scratch):
        data = sound_tables[suffix]
        demand_table_or_sentence(scratch / f"e{suffix}", data[: int(part * len(data))])


@pytest.fixture(scope="module")
def sound_tables(scratch):
    frame = pd.DataFrame({"age": [41, 17, 63], "dose": [0.5, None, 2.5], "kind": ["cold", "flu", "cold"]})
    frame.to_csv(scratch / "sound.csv", index=False)
    frame.to_parquet(scratch / "sound.parquet")
    frame.to_feather(scratch / "sound.arrow")
    frame.to_json(scratch / "sound.jsonl", orient="records", lines=True)
    np.savez(scratch / "sound.npz", X=np.arange(6.0).reshape(3, 2), y=np.array([0, 1, 0]))
    return {path.suffix: path.read_bytes() for path in scratch.glob("sound.*")}


# -- Studies ----------------------------------------------------------------------------------------

yaml_words = (
    "name data methods draws parameters digits pulse &a *a << !!python/object:os.system !!int 2001-13-45"
)
yaml_signs = [
    "1e3",
    "0x",
    "~",
    "'",
    '"',
    "|",
    ">",
    "#",
    "?",
    "%",
    "\t",
    "é",
    "\x01",
    ": ",
    "- ",
    "\n",
    "  ",
    *"[]{}",
]
yaml_pieces = st.sampled_from([*yaml_words.split(), *yaml_signs])
yaml_texts = st.lists(yaml_pieces, max_size=25).map("".join).map(str.encode)
GOOD_STUDY = {"name": "mine", "data": ["digits"], "methods": ["pulse"], "draws": 2}


def demand_study_or_sentence(path, data):
    path.write_bytes(data)
    try:
        study = load_study(path)
    except (ValueError, FileNotFoundError) as error:
        assert all(line.startswith(str(path)) for line in str(error).splitlines())  # noqa: PT017
    else:
        assert isinstance(study, Study)


class TestStudies:
    @examples(40)
    @given(data=st.binary(max_size=60))
    def test_random_bytes(self, data, scratch):
        demand_study_or_sentence(scratch / "random.yml", data)

    @examples(150)
    @given(data=yaml_texts)
    def test_almost_yaml(self, data, scratch):
        demand_study_or_sentence(scratch / "almost.yml", data)

    @examples(60)
    @given(edits=changes)
    def test_a_sound_study_with_bytes_changed(self, edits, scratch):
        demand_study_or_sentence(scratch / "edited.yml", changed(yaml.safe_dump(GOOD_STUDY).encode(), edits))

    @examples(60)
    @given(
        key=st.sampled_from([*GOOD_STUDY, "title", "defaults", "networks", "seed", "x"]), value=json_values
    )
    def test_any_value_for_any_key(self, key, value):
        try:
            study = parse_study({**GOOD_STUDY, key: value}, "a study")
        except ValueError as error:
            assert all(line.startswith("a study: ") for line in str(error).splitlines())  # noqa: PT017
        else:
            assert isinstance(study, Study)

    @pytest.mark.parametrize("depth", [2000, 50_000])
    def test_endless_nesting(self, depth, scratch):
        demand_study_or_sentence(scratch / "deep.yml", b"name: " + b"[" * depth)


# -- Saved models -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound_model(scratch):
    """A folder with all that a model's folder has: a manifest, tensors and a scikit-learn part."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), np.repeat([0, 1], 15)
    parts = [BBE().fit(rng.random(20), rng.random(20)), LogisticRegression().fit(X, y), {"a": (1, 2.5, "b")}]
    save(parts, scratch / "sound")
    return scratch / "sound"


def copied(model, place):
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(model, place)
    return place


def demand_model_or_sentence(folder):
    try:
        load(folder)
    except ModelError as error:
        message = str(error)
    else:
        return True
    assert str(folder) in message
    assert "\n" not in message
    return False


def reseal(folder):
    """Make the digests right again, as somebody who means harm would."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes()
        entry.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    manifest["sha256"] = "0" * 64
    text = json.dumps(manifest)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(text.replace("0" * 64, digest, 1))


def places_in(node, path=()):
    """The paths to all values inside a tree of JSON."""
    yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from places_in(value, (*path, key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from places_in(value, (*path, i))


FILES = ["manifest.json", "tensors.safetensors", "sklearn/0.skops"]


class TestModels:
    @pytest.mark.parametrize("name", FILES)
    @examples(20, cases=len(FILES))
    @given(edits=changes)
    def test_bytes_changed_are_noticed(self, name, edits, sound_model, scratch):
        folder = copied(sound_model, scratch / "changed")
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(changed(before, edits))
        same = (folder / name).read_bytes() == before
        assert demand_model_or_sentence(folder) is same

    @pytest.mark.parametrize("name", FILES[1:])
    @examples(30, cases=len(FILES) - 1)
    @given(edits=changes)
    def test_bytes_changed_under_right_digests(self, name, edits, sound_model, scratch):
        folder = copied(sound_model, scratch / "resealed")
        (folder / name).write_bytes(changed((folder / name).read_bytes(), edits))
        reseal(folder)
        demand_model_or_sentence(folder)

    @examples(60)
    @given(place=st.floats(0, 1, exclude_max=True), value=json_values)
    def test_a_value_of_the_tree_changed_under_right_digests(self, place, value, sound_model, scratch):
        folder = copied(sound_model, scratch / "tree")
        manifest = json.loads((folder / "manifest.json").read_bytes())
        paths = list(places_in(manifest["object"]))
        *way, last = ("object", *paths[int(place * len(paths))])
        node = manifest
        for step in way:
            node = node[step]
        node[last] = None if isinstance(value, float) and not np.isfinite(value) else value
        try:
            text = json.dumps(manifest, allow_nan=False)
        except ValueError:  # a number that JSON does not have, deep inside the value
            return
        (folder / "manifest.json").write_text(text)
        reseal(folder)
        demand_model_or_sentence(folder)


# -- What is written for people ---------------------------------------------------------------------


class TestStates:
    @examples(60)
    @given(place=st.floats(0, 1, exclude_max=True), value=json_values)
    def test_a_monitors_state_with_a_value_changed(self, place, value):
        monitor = Monitor([0.5, 0.3, 0.2], ["a", "b", "novel"], n_bootstrap=2)
        proba = np.random.default_rng(0).dirichlet([5, 3, 2], 60)
        monitor.update("one", proba)
        state = json.loads(json.dumps(monitor.to_dict()))
        # A large number of resamples is slow, and nothing else.
        paths = [path for path in places_in(state) if path and path[-1] != "n_bootstrap"]
        *way, last = paths[int(place * len(paths))]
        node = state
        for step in way:
            node = node[step]
        node[last] = value
        try:
            Monitor.from_dict(state).update("two", proba)
        except ValueError as error:
            assert str(error)  # noqa: PT017


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, tuple(sorted(key for key, _ in attrs))))


def tags_of(page):
    parser = _Tags()
    parser.feed(page)
    parser.close()
    return parser.seen


markup = st.lists(
    st.sampled_from(
        [
            "<",
            ">",
            "&",
            '"',
            "'",
            "/",
            "script",
            "svg",
            "onload=",
            "x",
            "<!--",
            "-->",
            "]]>",
            "&lt;",
            "é",
            "\n",
        ]
    ),
    max_size=8,
).map("".join)


class TestPages:
    @examples(60)
    @given(title=markup, name=markup)
    def test_names_never_become_tags(self, title, name):
        def charts(title, name):
            return [
                str(share_chart(title, [ShareRow(name, 0.4, 0.6, 0.5, 0.7, False)])),
                str(count_chart(title, [(name, 3, False)])),
                str(draw_chart(title, [DrawRow(name, "m0", [0.5])], from_zero=True)),
            ]

        for hostile, harmless in zip(charts(title, name), charts("title", "name"), strict=True):
            assert tags_of(hostile) == tags_of(harmless)
