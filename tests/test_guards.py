"""Readers stay in their file, take what a file has and no more, and say in one sentence what they refuse."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image
from typer.testing import CliRunner

from osls.app.cli import app
from osls.app.files import InputError, read_table
from osls.app.files.guards import check_regular
from osls.app.files.opening import open_rows
from osls.app.predict import write_predictions
from osls.app.report.groups import thumbnail_uri
from osls.app.tables.pictures import read_picture
from osls.app.tables.problem import _blanks_note, check_labels
from osls.app.watch import _settled
from osls.datasets.image_sets import read_image


def one_sentence(caught, *words):
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    for word in words:
        assert word in text


# -- Pipes, sockets, devices ------------------------------------------------------------------------


def make_pipe(path):
    os.mkfifo(path)
    return path


def make_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)
    return path


def make_link_to(target):
    def make(path):
        path.symlink_to(target)
        return path

    return make


SPECIAL = {
    "pipe": make_pipe,
    "socket": make_socket,
    "device": make_link_to("/dev/zero"),
    "terminal": make_link_to("/dev/ptmx"),
}


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".jsonl", ".npz", ".h5ad"])
def test_special_files_are_refused_before_they_are_opened(make, suffix, tmp_path):
    path = make(tmp_path / f"rows{suffix}")
    with pytest.raises(InputError) as caught:
        read_table(path)
    one_sentence(caught, path.name, "a pipe, a socket or a device", "give")


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL)
def test_a_watched_folder_passes_over_them(make, tmp_path):
    make(tmp_path / "rows.csv")
    (tmp_path / "good.csv").write_text("a\n1\n")
    os.utime(tmp_path / "good.csv", (0, 0))
    assert [path.name for path in _settled(tmp_path, {}, {})] == ["good.csv"]


@pytest.mark.parametrize("name", ["a.png", "a.txt"])
def test_a_folder_passes_over_pipes(name, tmp_path):
    os.mkfifo(tmp_path / f"x{name}")
    if name == "a.png":
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    else:
        (tmp_path / name).write_text("hello")
    rows = open_rows(tmp_path)
    assert rows.count() == 1
    assert "1 files" in rows.notes[0]


def test_a_name_that_is_no_text_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    os.rename(tmp_path / "a.txt", os.fsencode(tmp_path) + b"/half \xff of it.txt")
    with pytest.raises(InputError) as caught:
        read_table(tmp_path)
    one_sentence(caught, "half", "not UTF-8", "rename")


def test_regular_files_and_folders_are_fine(tmp_path):
    (tmp_path / "a").touch()
    check_regular(tmp_path / "a")
    check_regular(tmp_path)


# -- Pictures that are something else ---------------------------------------------------------------

GHOSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
FOREIGN = {
    "PostScript": GHOSTSCRIPT,
    "a portable pixmap": b"P6 2 2 255\n" + b"\0" * 12,
    "an XPM": b'/* XPM */\nstatic char *x[] = {\n"1 1 1 1",\n"a c #000000",\n"a"};\n',
    "a PCX": b"\x0a\x05\x01\x08" + b"\0" * 200,
    "a Targa": b"\0\0\x02" + b"\0" * 9 + b"\x02\0\x02\0\x18\0" + b"\0" * 12,
    "an icon": b"\0\0\x01\0\x01\0" + b"\x10\x10\0\0\1\0\x20\0\x30\0\0\0\x16\0\0\0" + b"\0" * 60,
    "a FITS": b"SIMPLE  =                    T" + b" " * 2850,
    "a QOI": b"qoif\0\0\0\x01\0\0\0\x01\x03\0" + b"\0" * 20,
}


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
def test_other_formats_under_the_name_of_a_picture_are_not_opened(data, suffix, tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("no program is started for a picture")

    monkeypatch.setattr(subprocess, "check_call", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_picture(path, 8)
    one_sentence(caught, path.name, "not a picture")
    with pytest.raises(ValueError, match="not an image"):
        read_image(path, 8)
    assert thumbnail_uri(path) is None


# -- HDF5 -------------------------------------------------------------------------------------------


def secret(folder):
    with h5py.File(folder / "other.h5", "w") as file:
        file["x"] = np.arange(6.0).reshape(3, 2)
    (folder / "secret.bin").write_bytes(b"\1" * 48)
    return folder


def external_link(file, folder):
    file["X"] = h5py.ExternalLink(str(secret(folder) / "other.h5"), "x")


def external_link_in_a_group(file, folder):
    file.create_group("uns")["deep"] = h5py.ExternalLink(str(secret(folder) / "other.h5"), "x")


def external_storage(file, folder):
    secret(folder)
    file.create_dataset("X", (3, 2), "f8", external=[(str(folder / "secret.bin"), 0, 48)])


def virtual_dataset(file, folder):
    layout = h5py.VirtualLayout((3, 2), "f8")
    layout[:] = h5py.VirtualSource(str(secret(folder) / "other.h5"), "x", (3, 2))
    file.create_virtual_dataset("X", layout)


@pytest.mark.parametrize(
    "make",
    [external_link, external_link_in_a_group, external_storage, virtual_dataset],
    ids=lambda make: make.__name__.replace("_", " "),
)
def test_hdf5_that_leads_to_other_files_is_refused(make, tmp_path):
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        make(file, tmp_path)
    with pytest.raises(InputError) as caught:
        read_table(tmp_path / "a.h5ad")
    one_sentence(caught, "a.h5ad", "links to other files")


def test_hdf5_that_claims_gigabytes_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file.create_dataset("X", (60_000, 10_000), "f8", chunks=(100, 100), compression="gzip")
    with pytest.raises(InputError) as caught:
        read_table(tmp_path / "a.h5ad")
    one_sentence(caught, "a.h5ad", "unpacks to 4577 MB", "sparse")


def test_hdf5_that_holds_itself_ends(tmp_path):
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["loop"] = file["/"]
        file["soft"] = h5py.SoftLink("/loop")
    with pytest.raises(InputError, match="cannot be read as h5ad"):
        read_table(tmp_path / "a.h5ad")


# -- Files that change under the reader --------------------------------------------------------------

CUT = """
import sys
import pyarrow as pa
from osls.app.files.opening import open_rows
path = sys.argv[1]
rows = open_rows(path)
with open(path, "r+b") as file:
    file.truncate(200)
try:
    list(rows.batches())
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_an_arrow_file_that_is_cut_while_it_is_read_does_not_end_the_process(kind, tmp_path):
    table = pa.table({"a": np.arange(200_000.0)})
    writer = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with writer(str(tmp_path / "a.arrow"), table.schema) as sink:
        sink.write_table(table)
    assert len(read_table(tmp_path / "a.arrow")) == 200_000
    command = [sys.executable, "-c", CUT, str(tmp_path / "a.arrow")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cannot be read as Arrow" in done.stdout


# -- Refusals that help -----------------------------------------------------------------------------


def test_a_row_of_two_megabytes_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("text,kind\n" + "x" * (2 << 20) + ",a\nshort,b\n")
    assert read_table(tmp_path / "a.csv")["text"].str.len().tolist() == [2 << 20, 5]


def test_a_row_of_more_than_that_is_refused_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("osls.app.files.text_files._LONGEST_ROW", 1 << 20)
    (tmp_path / "a.csv").write_text("text,kind\n" + "x" * (4 << 20) + ",a\nshort,b\n")
    with pytest.raises(InputError) as caught:
        read_table(tmp_path / "a.csv")
    one_sentence(caught, "a.csv", "more than 1 MB", "shorten")


def test_a_field_of_more_than_128_megabytes_is_refused_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("osls.app.files.text_files._FIELD_LIMIT", 1 << 20)
    (tmp_path / "a.csv").write_text("text,kind\n" + "x" * (2 << 20) + ",a\nshort,b\n")
    with pytest.raises(InputError) as caught:
        read_table(tmp_path / "a.csv")
    one_sentence(caught, "a.csv", "more than 1 MB", "shorten")


def test_a_key_a_row_is_refused_before_it_fills_the_memory(tmp_path):
    lines = (json.dumps({f"k{i}": i}) for i in range(20_000))
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError) as caught:
        read_table(tmp_path / "a.jsonl")
    one_sentence(caught, "a.jsonl", "different keys", "give all rows the same keys")


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_the_last_day_that_people_write_is_read(unit, tmp_path):
    end = np.array(["9999-12-31", "2020-01-01"], dtype=f"M8[{unit}]")
    pd.DataFrame({"until": end, "kind": ["a", "b"]}).to_parquet(tmp_path / "a.parquet")
    assert str(read_table(tmp_path / "a.parquet")["until"].iloc[0]).startswith("9999-12-31")
    (tmp_path / "a.csv").write_text("until,kind\n9999-12-31,a\n2020-01-01,b\n")
    assert str(read_table(tmp_path / "a.csv")["until"].iloc[0]).startswith("9999-12-31")


@pytest.mark.parametrize("megabytes", [300, 700, 1400])
def test_a_shell_that_allows_too_little_memory_is_told_so(megabytes):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    command = [sys.executable, "-m", "osls.app.cli", "predict", "model", "rows.csv"]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    said = f"osls: this shell allows {megabytes} MB of memory and osls needs 3072; "
    assert done.stderr == said + "raise the limit with ulimit -v.\n"


def test_a_full_memory_ends_in_a_sentence(monkeypatch):
    def fill(*_, **__):
        raise MemoryError

    monkeypatch.setattr("osls.app.predict.run_predict", fill)
    result = CliRunner().invoke(app, ["predict", "model", "rows.csv"])
    assert result.exit_code == 2
    assert result.stderr.startswith("osls: the memory is full; give fewer rows")


# -- Labels and spreadsheets ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (["caf\u00e9", "cafe\u0301"], "Unicode form"),
        (["flu", "\ufb02u"], "Unicode form"),
        (["flu", "FLU"], "case"),
        (["sore throat", "sore\u00a0throat"], "Unicode form or blanks"),
        (["a  b", "a b"], "blanks"),
    ],
)
def test_classes_that_look_alike_are_named_with_their_counts(pair, words):
    names = np.array([pair[0]] * 3 + [pair[1]] * 2)
    _, _, notes = check_labels(names, "s.csv", "kind", "novel", allow_one_class=False)
    assert len(notes) == 1
    assert words in notes[0]
    assert "3 rows" in notes[0]
    assert "2 rows" in notes[0]


def test_blanks_that_are_taken_off_are_counted():
    assert _blanks_note(pd.Series(["flu", " flu", "flu\t", "a b", None])) == [
        "2 labels have blanks at their ends, which were taken off."
    ]
    assert _blanks_note(pd.Series([1.0, 2.0])) == []


FORMULAS = ["=1+1", "+1", "-1", "@x", "\t=1", "  =1", "\r=1", "=cmd|' /C calc'!A0", "-2+3"]


@pytest.mark.parametrize("formula", FORMULAS, ids=repr)
def test_formulas_are_texts_in_a_safe_csv(formula, tmp_path):
    frame = pd.DataFrame({formula: ["x"], "predicted": [formula], "id": [f"a{formula}"], "novel": [-0.5]})
    paths = [tmp_path / name for name in ("p.csv", "p.parquet")]
    write_predictions([frame], *paths, safe_csv=True)
    safe = pd.read_csv(paths[0])
    assert list(safe.columns) == [f"'{formula}", "predicted", "id", "novel"]
    assert safe["predicted"].tolist() == [f"'{formula}"]
    assert safe["id"].tolist() == [f"a{formula}"]
    assert safe["novel"].tolist() == [-0.5]
    assert pd.read_parquet(paths[1]).equals(frame)  # which no spreadsheet computes
    write_predictions([frame], paths[0])
    assert pd.read_csv(paths[0], dtype=str)["predicted"].tolist() == [formula]


def test_an_archive_that_explodes_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", b"\0" * (300 << 20))
    with pytest.raises(InputError, match="times its size"):
        read_table(tmp_path / "a.npz")
