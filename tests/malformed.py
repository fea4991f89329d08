"""Inputs that people have, and that must end in one clear sentence: a generator of files, one case each.

A case is a function that writes files into an empty folder and returns the arguments of ``osls adapt`` that
differ from the usual ones. Beside it stand the words that the message must contain.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
from PIL import Image

Arguments = dict[str, Any]
Maker = Callable[[Path], Arguments | None]


@dataclass(frozen=True)
class Case:
    """A malformed input: how to make it, and what the message must name."""

    name: str
    make: Maker
    words: tuple[str, ...]

    def command(self, folder: Path) -> list[str]:
        """Write the files and return the arguments of the command line."""
        write_good(folder)
        usual: Arguments = {
            "source": folder / "source.csv",
            "target": folder / "target.csv",
            "label": "kind",
            "out": folder / "run",
        }
        chosen = {**usual, **(self.make(folder) or {})}
        words = ["adapt"]
        for name, value in chosen.items():
            if value is True:
                words.append(f"--{name}")
            elif value is not None:
                words += [f"--{name}", str(value)]
        return words


CASES: list[Case] = []


def case(*words: str) -> Callable[[Maker], Maker]:
    """Register a case under its function's name."""

    def register(make: Maker) -> Maker:
        CASES.append(Case(make.__name__.replace("_", "-"), make, words))
        return make

    return register


# -- Files that are right ---------------------------------------------------------------------------


def rows(n: int = 40, *, labelled: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(n)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 80, n),
            "dose": rng.normal(size=n).round(3),
            "ward": rng.choice(["north", "south", "west"], n),
            "seen": pd.date_range("2024-01-01", periods=n).strftime("%Y-%m-%d"),
        }
    )
    return frame.assign(kind=np.resize(["cold", "flu"], n)) if labelled else frame


def write_good(folder: Path) -> None:
    rows().to_csv(folder / "source.csv", index=False)
    rows(30, labelled=False).to_csv(folder / "target.csv", index=False)


def lines(frame: pd.DataFrame) -> list[str]:
    return frame.to_csv(index=False).splitlines()


def source_with(folder: Path, **columns: Any) -> None:
    rows().assign(**columns).to_csv(folder / "source.csv", index=False)


def target_with(folder: Path, **columns: Any) -> None:
    rows(30, labelled=False).assign(**columns).to_csv(folder / "target.csv", index=False)


def changed(values: Any, row: int, value: Any) -> list[Any]:
    """The values with that of one row, counted from 1, replaced."""
    values = list(values)
    values[row - 1] = value
    return values


def cut(path: Path, keep: float = 0.5) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


# -- CSV --------------------------------------------------------------------------------------------


@case("source.csv", "row 3", "4 values", "5")
def csv_row_too_short(folder: Path) -> None:
    text = lines(rows())
    text[3] = text[3].rsplit(",", 1)[0]
    (folder / "source.csv").write_text("\n".join(text))


@case("target.csv", "row 7", "6 values", "4")
def csv_row_too_long(folder: Path) -> None:
    text = lines(rows(30, labelled=False))
    text[7] += ",1,2"
    (folder / "target.csv").write_text("\n".join(text))


@case("source.csv", "row 2 ", "quote")
def csv_comma_in_an_unquoted_text(folder: Path) -> None:
    text = ["note,kind", "fine,cold", "so, so,flu", "bad,cold", "good,flu"]
    (folder / "source.csv").write_text("\n".join(text))


@case("source.csv", "row 20", "never closed")
def csv_quote_never_closed(folder: Path) -> None:
    text = lines(rows(labelled=True)[["age", "dose", "kind"]])
    text[20] = '50,0.1,"cold'
    (folder / "source.csv").write_text("\n".join(text) + "\n")


@case("source.csv", "empty")
def csv_empty(folder: Path) -> None:
    (folder / "source.csv").write_bytes(b"")


@case("target.csv", "empty")
def csv_blank_lines_only(folder: Path) -> None:
    (folder / "target.csv").write_text("\n\n  \n")


@case("target.csv", "no row")
def csv_header_only(folder: Path) -> None:
    (folder / "target.csv").write_text("age,dose,ward,seen\n")


@case("source.csv", "line 3", "UTF-8")
def csv_latin_1(folder: Path) -> None:
    (folder / "source.csv").write_bytes("name,kind\nAna,cold\nJosé,flu\n".encode("latin-1"))


@case("target.csv", "UTF-16", "UTF-8")
def csv_utf_16(folder: Path) -> None:
    (folder / "target.csv").write_bytes("age,dose\n1,2\n".encode("utf-16"))


@case("target.csv", "line 2", "UTF-8")
def csv_cut_inside_a_letter(folder: Path) -> None:
    (folder / "target.csv").write_bytes("ward\nsüd".encode()[:-2])


@case("source.csv", "not a text file")
def csv_that_is_a_binary_file(folder: Path) -> None:
    (folder / "source.csv").write_bytes(b"\x00\x01\x02kind" * 50)


@case("source.csv", "'dose'", "more than once")
def csv_duplicate_column(folder: Path) -> None:
    text = lines(rows())
    text[0] = text[0].replace("age", "dose")
    (folder / "source.csv").write_text("\n".join(text))


@case("new patients.csv", "row 1 ", "2 values")
def csv_in_a_path_with_spaces(folder: Path) -> Arguments:
    (folder / "data of May").mkdir()
    path = folder / "data of May" / "new patients.csv"
    path.write_text("age,dose,ward\n1,2\n")
    return {"target": path}


# -- The label --------------------------------------------------------------------------------------


@case("source.csv", "'kindd'", "did you mean 'kind'")
def label_misspelt(folder: Path) -> Arguments:
    return {"label": "kindd"}


@case("source.csv", "'🤒'", "'🤧 kind'")
def label_among_emoji_headers(folder: Path) -> Arguments:
    rows().rename(columns={"kind": "🤧 kind", "age": "🎂"}).to_csv(folder / "source.csv", index=False)
    return {"label": "🤒"}


@case("source.csv", "--label")
def label_not_given(folder: Path) -> Arguments:
    return {"label": None}


@case("source.csv", "row 12 has no label", "'kind'")
def label_missing_in_a_row(folder: Path) -> None:
    source_with(folder, kind=changed(rows()["kind"], 12, ""))


@case("source.csv", "row 4 and 1 more rows have no label", "'kind'")
def label_not_available_in_two_rows(folder: Path) -> None:
    source_with(folder, kind=changed(changed(rows()["kind"], 4, "NA"), 9, "NaN"))


@case("source.csv", "'kind' is empty")
def label_column_empty(folder: Path) -> None:
    source_with(folder, kind="")


@case("target.csv", "label column 'kind'", "--ignore-target-label")
def label_in_the_target(folder: Path) -> None:
    rows(30).to_csv(folder / "target.csv", index=False)


@case("source.csv", "one class only", "'flu'", "--allow-one-class")
def label_of_one_class(folder: Path) -> None:
    source_with(folder, kind="flu")


@case("source.csv", "'kind'", "10000 different values", "id")
def label_of_ten_thousand_classes(folder: Path) -> None:
    n = 20_000
    frame = pd.DataFrame({"age": np.arange(n) % 70, "kind": [f"c{i % 10_000}" for i in range(n)]})
    frame.to_csv(folder / "source.csv", index=False)


@case("source.csv", "'kind'", "40 different values in 40 rows")
def label_that_is_an_id(folder: Path) -> None:
    source_with(folder, kind=[f"patient-{i}" for i in range(40)])


@case("source.csv", "'dose'", "measurement")
def label_that_is_a_measurement(folder: Path) -> Arguments:
    target = rows(30, labelled=False).drop(columns="dose")
    target.to_csv(folder / "target.csv", index=False)
    return {"label": "dose"}


@case("source.csv", "'kind'", "400 classes in 800 rows", "5 a class")
def label_of_four_hundred_classes_of_two_rows(folder: Path) -> None:
    n = 800
    frame = pd.DataFrame({"age": np.arange(n) % 70, "kind": [f"c{i % 400}" for i in range(n)]})
    frame.to_csv(folder / "source.csv", index=False)


@case("target.csv", "pipe", "give")
def target_that_is_a_pipe(folder: Path) -> Arguments:
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "target.csv")
    return {"target": folder / "pipe" / "target.csv"}


@case("source.jsonl", "different keys", "same keys")
def json_with_a_key_a_row(folder: Path) -> Arguments:
    (folder / "source.jsonl").write_text(
        "\n".join(json.dumps({f"k{i}": i, "kind": "a"}) for i in range(9000))
    )
    return {"source": folder / "source.jsonl"}


@case("\\x1b[2J", "no file has such a name")
def source_with_a_command_in_its_name(folder: Path) -> Arguments:
    return {"source": folder / "no\x1b[2J.csv"}


@case("only 1 row of the class 'rare\\x1b]0;x'")
def class_with_a_command_in_its_name(folder: Path) -> None:
    source_with(folder, kind=changed(rows()["kind"], 5, "rare\x1b]0;x"))


@case("source.csv", "'do\\u202ese'", "more than once")
def column_with_a_mark_of_direction(folder: Path) -> None:
    text = lines(rows())
    text[0] = text[0].replace("age", "do\u202ese").replace("dose", "do\u202ese")
    (folder / "source.csv").write_text("\n".join(text))


@case("source.csv", "only 1 row of the class 'rare'")
def label_with_a_class_of_one_row(folder: Path) -> None:
    source_with(folder, kind=changed(rows()["kind"], 5, "rare"))


@case("source.csv", "'novel'", "--novel-label")
def label_with_a_class_called_novel(folder: Path) -> None:
    source_with(folder, kind=np.resize(["cold", "novel"], 40))


# -- Values -----------------------------------------------------------------------------------------


@case("source.csv", "'dose'", "inf", "row 9")
def infinite_number(folder: Path) -> None:
    source_with(folder, dose=changed(rows()["dose"], 9, "inf"))


@case("target.csv", "'dose'", "-inf", "row 2")
def infinite_number_in_the_target(folder: Path) -> None:
    target_with(folder, dose=changed(rows(30)["dose"], 2, "-inf"))


@case("target.csv", "'dose'", "1e+300", "row 30")
def number_too_large(folder: Path) -> None:
    target_with(folder, dose=changed(rows(30)["dose"], 30, 1e300))


@case("source.csv", "'dose'", "'high'", "row 17")
def word_among_numbers(folder: Path) -> None:
    source_with(folder, dose=changed(rows()["dose"], 17, "high"))


@case("target.csv", "'age'", "'young'", "row 1 ", "source.csv")
def words_here_and_numbers_there(folder: Path) -> None:
    target_with(folder, age=np.resize(["young", "old", "very old"], 30))


@case("source.csv", "'seen'", "'2024-13-45'", "row 6", "dates")
def date_that_does_not_exist(folder: Path) -> None:
    source_with(folder, seen=changed(rows()["seen"], 6, "2024-13-45"))


@case("target.csv", "'seen'", "'soon'", "row 1 ", "dates")
def words_in_place_of_dates(folder: Path) -> None:
    target_with(folder, seen=np.resize(["soon", "later"], 30))


@case("target.csv", "no column is left", "'dose'", "no value")
def only_column_is_all_missing(folder: Path) -> None:
    rows()[["dose", "kind"]].to_csv(folder / "source.csv", index=False)
    pd.DataFrame({"dose": [None] * 30, "note": ["x"] * 30}).to_csv(folder / "target.csv", index=False)


@case("target.csv", "no column is left", "'dose'", "same value")
def only_column_is_constant(folder: Path) -> None:
    rows()[["kind"]].assign(dose=1).to_csv(folder / "source.csv", index=False)
    pd.DataFrame({"dose": [1] * 30}).to_csv(folder / "target.csv", index=False)


@case("target.csv", "no column is left", "only in the source", "only in the target")
def no_column_in_common(folder: Path) -> None:
    frame = rows(30, labelled=False)
    frame.rename(columns=lambda name: f"other {name}").to_csv(folder / "target.csv", index=False)


@case("target.csv", "'AGE'", "source.csv", "'age'", "write both alike", "--ignore")
def columns_in_another_case(folder: Path) -> None:
    frame = rows(30, labelled=False)
    frame.rename(columns=str.upper).to_csv(folder / "target.csv", index=False)


@case("target.csv", "no column is left")
def nothing_but_the_label(folder: Path) -> None:
    rows()[["kind"]].to_csv(folder / "source.csv", index=False)


@case("target.csv", "no column is left", "'patient'", "id")
def nothing_but_an_id(folder: Path) -> None:
    rows()[["kind"]].assign(patient=[f"p{i}" for i in range(40)]).to_csv(folder / "source.csv", index=False)
    pd.DataFrame({"patient": [f"q{i}" for i in range(30)]}).to_csv(folder / "target.csv", index=False)


@case("target.csv", "5 rows", "10")
def target_of_five_rows(folder: Path) -> None:
    rows(5, labelled=False).to_csv(folder / "target.csv", index=False)


# -- Arguments and paths ----------------------------------------------------------------------------


@case("no patients.csv", "no such file")
def source_does_not_exist(folder: Path) -> Arguments:
    return {"source": folder / "no patients.csv"}


@case("target.csv", "'patient'", "id column")
def id_column_does_not_exist(folder: Path) -> Arguments:
    return {"id": "patient"}


@case("'kind'", "both label and id")
def id_column_is_the_label(folder: Path) -> Arguments:
    rows(30).to_csv(folder / "target.csv", index=False)
    return {"id": "kind"}


@case("target.csv", "'predicted'", "rename")
def id_column_named_like_an_answer(folder: Path) -> Arguments:
    target_with(folder, predicted=range(30))
    return {"id": "predicted"}


@case("'wardd'", "did you mean 'ward'")
def ignored_column_does_not_exist(folder: Path) -> Arguments:
    return {"ignore": "wardd"}


@case("source.ods", ".ods", ".parquet")
def unknown_extension(folder: Path) -> Arguments:
    (folder / "source.ods").write_bytes(b"PK")
    return {"source": folder / "source.ods"}


@case("source.xlsx", "Excel", "save it again")
def workbook_cut_short(folder: Path) -> Arguments:
    (folder / "source.xlsx").write_bytes(b"PK")
    return {"source": folder / "source.xlsx"}


@case("target.csv", "has it", "swapped?")
def source_and_target_swapped(folder: Path) -> Arguments:
    (folder / "source.csv").rename(folder / "both.csv")
    (folder / "target.csv").rename(folder / "source.csv")
    (folder / "both.csv").rename(folder / "target.csv")
    return {}


@case("one.png", "folder")
def single_picture(folder: Path) -> Arguments:
    Image.new("RGB", (4, 4)).save(folder / "one.png")
    return {"target": folder / "one.png"}


@case("run", "exists already", "--overwrite")
def out_exists(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "notes.txt").write_text("mine")


@case("run", "did not write")
def out_holds_files_of_others(folder: Path) -> Arguments:
    out_exists(folder)
    return {"overwrite": True}


@case("run", "is a file")
def out_is_a_file(folder: Path) -> None:
    (folder / "run").write_text("mine")


@case("level", "1.5")
def level_out_of_range(folder: Path) -> Arguments:
    return {"level": 1.5}


@case("target", "a folder of pictures", "source.csv")
def table_and_folder(folder: Path) -> Arguments:
    pictures(folder)
    return {"target": folder / "target"}


# -- JSON lines -------------------------------------------------------------------------------------


def json_lines(folder: Path, row: int, text: str) -> Arguments:
    """A source in which one line is replaced."""
    records = [json.dumps(record) for record in rows().to_dict("records")]
    (folder / "source.jsonl").write_text("\n".join(changed(records, row, text)))
    return {"source": folder / "source.jsonl"}


@case("source.jsonl", "line 3", "not JSON")
def json_line_cut_short(folder: Path) -> Arguments:
    return json_lines(folder, 3, '{"age": 30, "kind": "co')


@case("source.jsonl", "line 5", "not an object")
def json_line_that_is_a_list(folder: Path) -> Arguments:
    return json_lines(folder, 5, '[30, "cold"]')


@case("source.jsonl", "'age'", "twice")
def json_key_twice(folder: Path) -> Arguments:
    return json_lines(folder, 2, '{"age": 30, "age": 31, "kind": "cold"}')


@case("source.jsonl", "'ward'", "row 8", "list")
def json_list_in_a_cell(folder: Path) -> Arguments:
    return json_lines(folder, 8, '{"age": 30, "dose": 1, "ward": ["north"], "kind": "cold"}')


@case("source.jsonl", "row 6", "object")
def json_object_as_label(folder: Path) -> Arguments:
    return json_lines(folder, 6, '{"age": 30, "dose": 1, "ward": "north", "kind": {"name": "cold"}}')


@case("source.jsonl", "'dose'", "inf", "row 4")
def json_infinity(folder: Path) -> Arguments:
    return json_lines(folder, 4, '{"age": 30, "dose": Infinity, "ward": "north", "kind": "cold"}')


@case("source.jsonl", "line 1 ", "nested")
def json_nested_a_million_deep(folder: Path) -> Arguments:
    return json_lines(folder, 1, '{"age": ' + "[" * 1_000_000 + "}")


@case("source.jsonl", "empty")
def json_empty(folder: Path) -> Arguments:
    (folder / "source.jsonl").write_text("\n")
    return {"source": folder / "source.jsonl"}


@case("source.json", "no rows")
def json_array_without_rows(folder: Path) -> Arguments:
    (folder / "source.json").write_text("[]")
    return {"source": folder / "source.json"}


# -- Parquet and Arrow ------------------------------------------------------------------------------


def parquet(folder: Path, table: pa.Table) -> Arguments:
    pq.write_table(table, folder / "source.parquet")
    return {"source": folder / "source.parquet"}


@case("source.parquet", "cut short")
def parquet_cut_short(folder: Path) -> Arguments:
    found = parquet(folder, pa.Table.from_pandas(rows()))
    cut(folder / "source.parquet")
    return found


@case("source.parquet", "wrong extension")
def parquet_that_is_a_csv(folder: Path) -> Arguments:
    rows().to_csv(folder / "source.parquet", index=False)
    return {"source": folder / "source.parquet"}


@case("source.parquet", "no rows")
def parquet_without_rows(folder: Path) -> Arguments:
    return parquet(folder, pa.Table.from_pandas(rows().head(0)))


@case("source.parquet", "'tags'", "row 1;", "list")
def parquet_column_of_lists(folder: Path) -> Arguments:
    target_with(folder, tags="x")
    return parquet(folder, pa.Table.from_pandas(rows()).append_column("tags", [[["a"]] * 40]))


@case("source.parquet", "'blob'", "bytes")
def parquet_column_of_bytes(folder: Path) -> Arguments:
    target_with(folder, blob="x")
    return parquet(folder, pa.Table.from_pandas(rows()).append_column("blob", [[b"\x00"] * 40]))


@case("source.parquet", "'dose'", "more than once")
def parquet_duplicate_column(folder: Path) -> Arguments:
    return parquet(folder, pa.table([pa.array([1]), pa.array([2])], names=["dose", "dose"]))


@case("source.parquet", "row 40 has no label")
def parquet_null_label(folder: Path) -> Arguments:
    return parquet(folder, pa.Table.from_pandas(rows().assign(kind=changed(rows()["kind"], 40, None))))


@case("source.feather", "Arrow", "cut short")
def arrow_cut_short(folder: Path) -> Arguments:
    pyarrow.feather.write_feather(rows(), folder / "source.feather")
    cut(folder / "source.feather")
    return {"source": folder / "source.feather"}


@case("source.arrow", "Arrow", "wrong extension")
def arrow_that_is_a_text(folder: Path) -> Arguments:
    (folder / "source.arrow").write_text("age,kind\n1,cold\n")
    return {"source": folder / "source.arrow"}


# -- npz and h5ad -----------------------------------------------------------------------------------


def npz(folder: Path, **arrays: Any) -> Arguments:
    usual: dict[str, Any] = {"X": np.random.default_rng(0).normal(size=(40, 3)), "y": np.arange(40) % 2}
    chosen = {key: value for key, value in {**usual, **arrays}.items() if value is not None}
    np.savez(folder / "source.npz", **chosen)
    np.savez(folder / "target.npz", X=usual["X"][:20])
    return {"source": folder / "source.npz", "target": folder / "target.npz", "label": "y"}


@case("source.npz", "no array X", "y")
def npz_without_rows(folder: Path) -> Arguments:
    return npz(folder, X=None)


@case("source.npz", "X has no rows")
def npz_with_a_matrix_of_no_rows(folder: Path) -> Arguments:
    return npz(folder, X=np.zeros((0, 3)), y=np.zeros(0, dtype=int))


@case("source.npz", "X has shape (40,)", "one row an example")
def npz_of_one_axis(folder: Path) -> Arguments:
    return npz(folder, X=np.arange(40.0))


@case("source.npz", "Python objects")
def npz_with_pickled_objects(folder: Path) -> Arguments:
    return npz(folder, y=np.array([{"a": 1}] * 40, dtype=object))


@case("source.npz", "cannot be read as npz")
def npz_cut_short(folder: Path) -> Arguments:
    found = npz(folder)
    cut(folder / "source.npz")
    return found


@case("source.npz", "y has shape (39,)", "40 rows")
def npz_labels_of_another_length(folder: Path) -> Arguments:
    return npz(folder, y=np.arange(39) % 2)


@case("source.npz", "'x1'", "row 5", "inf")
def npz_infinite_number(folder: Path) -> Arguments:
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[4, 1] = np.inf
    return npz(folder, X=X)


@case("source.npz", "sparse matrix")
def npz_sparse_parts_that_do_not_fit(folder: Path) -> Arguments:
    parts = {"data": np.ones(3), "indices": np.array([0, 1, 99]), "indptr": np.array([0, 1, 2, 3])}
    return npz(folder, X=None, shape=np.array([3, 5]), y=np.zeros(3, int), **parts)


@case("source.npz", "feature_names", "2 names")
def npz_too_few_names(folder: Path) -> Arguments:
    return npz(folder, feature_names=np.array(["a", "b"]))


@case("source.npz", "class_names")
def npz_label_without_a_name(folder: Path) -> Arguments:
    return npz(folder, class_names=np.array(["only"]))


@case("source.npz", "unpacks to")
def npz_bomb(folder: Path) -> Arguments:
    found = npz(folder)
    with zipfile.ZipFile(folder / "source.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("X.npy", bytes((1 << 28) + 1))
    return found


@case("target.npz", "label column 'y'")
def npz_target_with_labels(folder: Path) -> Arguments:
    found = npz(folder)
    np.savez(folder / "target.npz", X=np.zeros((20, 3)), y=np.zeros(20))
    return found


def write_h5ad(path: Path, kinds: Any, X: Any = None) -> None:
    import anndata

    X = np.random.default_rng(0).poisson(1, (len(kinds), 6)).astype(np.float32) if X is None else X

    def names(words: Any) -> pd.Index:
        # anndata cannot write the strings of pandas 3 yet.
        return pd.Index(list(words), dtype=object)

    kind = pd.Categorical(kinds, categories=names(sorted(set(kinds))))
    cells = pd.DataFrame({"kind": kind}, index=names(f"c{i}" for i in range(len(kinds))))
    genes = pd.DataFrame(index=names(f"g{i}" for i in range(X.shape[1])))
    anndata.AnnData(X, obs=cells, var=genes).write_h5ad(path)


def h5ad(folder: Path) -> Arguments:
    write_h5ad(folder / "source.h5ad", np.resize(["B cell", "T cell"], 40))
    return {"source": folder / "source.h5ad"}


@case("source.h5ad", "cannot be read as h5ad")
def h5ad_cut_short(folder: Path) -> Arguments:
    found = h5ad(folder)
    cut(folder / "source.h5ad")
    return found


@case("source.h5ad", "cannot be read as h5ad")
def h5ad_that_is_a_text(folder: Path) -> Arguments:
    (folder / "source.h5ad").write_text("not HDF5")
    return {"source": folder / "source.h5ad"}


@case("source.h5ad", "'celltype'", "did you mean 'cell'")
def h5ad_without_the_label(folder: Path) -> Arguments:
    return {**h5ad(folder), "label": "celltype"}


# -- Folders ----------------------------------------------------------------------------------------


def pictures(folder: Path) -> Arguments:
    """Two classes of six pictures, and twelve new ones."""
    rng = np.random.default_rng(0)
    for name in ("source/cat", "source/dog", "target"):
        (folder / name).mkdir(parents=True)
        for i in range(12 if name == "target" else 6):
            pixels = rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.jpg")
    return {"source": folder / "source", "target": folder / "target", "label": None, "images": "scratch"}


def png_of_size(width: int, height: int) -> bytes:
    """A few bytes that claim to be a picture of any size."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@case("3.jpg", "cut short")
def picture_cut_short(folder: Path) -> Arguments:
    found = pictures(folder)
    cut(folder / "target" / "3.jpg", 0.6)
    return found


@case("bomb.png", "pixels", "smaller")
def picture_bomb(folder: Path) -> Arguments:
    found = pictures(folder)
    (folder / "target" / "bomb.png").write_bytes(png_of_size(60_000, 60_000))
    return found


@case("large.png", "9000 x 9000", "smaller")
def picture_too_large(folder: Path) -> Arguments:
    found = pictures(folder)
    (folder / "source" / "dog" / "large.png").write_bytes(png_of_size(9000, 9000))
    return found


@case("text.png", "not a picture")
def picture_that_is_a_text(folder: Path) -> Arguments:
    found = pictures(folder)
    (folder / "source" / "cat" / "text.png").write_text("hello")
    return found


@case("archive.jpg", "not a picture")
def picture_that_is_a_zip_bomb(folder: Path) -> Arguments:
    found = pictures(folder)
    with zipfile.ZipFile(folder / "target" / "archive.jpg", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(1 << 26))
    return found


@case("0.jpg", "outside any class folder")
def picture_without_a_class(folder: Path) -> Arguments:
    found = pictures(folder)
    Image.new("RGB", (8, 8)).save(folder / "source" / "0.jpg")
    return found


@case("bird", "folder is empty")
def class_folder_empty(folder: Path) -> Arguments:
    found = pictures(folder)
    (folder / "source" / "bird").mkdir()
    return found


@case("nothing", "no pictures")
def target_folder_empty(folder: Path) -> Arguments:
    found = pictures(folder)
    (folder / "nothing").mkdir()
    return {**found, "target": folder / "nothing"}


@case("source", "pictures and texts")
def pictures_and_texts_together(folder: Path) -> Arguments:
    found = pictures(folder)
    (folder / "source" / "cat" / "note.txt").write_text("a cat")
    return found


@case("source", "one class only", "'cat'")
def one_class_folder(folder: Path) -> Arguments:
    found = pictures(folder)
    for path in (folder / "source" / "dog").iterdir():
        path.rename(folder / "source" / "cat" / f"d{path.name}")
    (folder / "source" / "dog").rmdir()
    return found


def texts(folder: Path, spoilt: str, content: bytes) -> Arguments:
    for name in ("source/cold", "source/flu", "target"):
        (folder / name).mkdir(parents=True)
        for i in range(12):
            (folder / name / f"{i}.txt").write_text(f"note number {i} on a patient who sneezes")
    (folder / spoilt).write_bytes(content)
    return {"source": folder / "source", "target": folder / "target", "label": None, "text": "tfidf"}


@case("5.txt", "line 2", "UTF-8")
def text_in_latin_1(folder: Path) -> Arguments:
    return texts(folder, "source/flu/5.txt", "eins\nfünf\n".encode("latin-1"))


@case("7.txt", "empty")
def text_empty(folder: Path) -> Arguments:
    return texts(folder, "target/7.txt", b"")
