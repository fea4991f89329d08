"""Reading tables, texts and pictures, and writing predictions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from scipy import sparse

from malformed import pictures, rows, texts, write_h5ad
from osls.app.files import InputError, open_rows, read_table
from osls.app.files.opening import as_rows
from osls.app.files.staging import check_destination, staged_file, staged_folder
from osls.app.files.text_files import infer_types
from osls.app.options import ReadOptions
from osls.app.predict import write_predictions
from osls.app.tables.pictures import read_picture

FRAME = rows()


@pytest.fixture
def written(tmp_path):
    """The same rows in every format that keeps them."""
    paths = {name: tmp_path / f"rows.{name}" for name in ("csv", "tsv", "parquet", "arrow", "jsonl", "json")}
    FRAME.to_csv(paths["csv"], index=False)
    FRAME.to_csv(paths["tsv"], index=False, sep="\t")
    FRAME.to_parquet(paths["parquet"])
    FRAME.to_feather(paths["arrow"])
    FRAME.to_json(paths["jsonl"], orient="records", lines=True)
    FRAME.to_json(paths["json"], orient="records")
    return paths


@pytest.mark.parametrize("name", ["csv", "tsv", "parquet", "arrow", "jsonl", "json"])
class TestFormats:
    def test_the_same_rows_come_back(self, written, name):
        found = read_table(written[name])
        assert list(found.columns) == list(FRAME.columns)
        assert found["age"].tolist() == FRAME["age"].tolist()
        np.testing.assert_allclose(found["dose"], FRAME["dose"])
        assert found["kind"].tolist() == FRAME["kind"].tolist()
        assert pd.to_datetime(found["seen"]).tolist() == pd.to_datetime(FRAME["seen"]).tolist()

    def test_batches_are_the_rows_in_order(self, written, name):
        data = open_rows(written[name])
        parts = list(data.batches(["kind", "age"], 7))
        assert all(len(part) <= 7 for part in parts)
        joined = pd.concat(parts)
        assert list(joined.columns) == ["kind", "age"]
        assert joined["age"].astype(int).tolist() == FRAME["age"].tolist()
        assert data.count() == len(FRAME)

    def test_some_rows_can_be_taken(self, written, name):
        found = open_rows(written[name]).take(np.array([0, 5, 39]), ["age"])
        assert found["age"].tolist() == FRAME["age"].iloc[[0, 5, 39]].tolist()


class TestDelimited:
    def read(self, tmp_path: Path, text: str, encoding: str = "utf-8") -> pd.DataFrame:
        path = tmp_path / "a.csv"
        path.write_bytes(text.encode(encoding))
        return read_table(path)

    @pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
    def test_delimiters(self, tmp_path, delimiter):
        text = "a,b,c\n1,x,2.5\n3,y,4.5\n".replace(",", delimiter)
        assert self.read(tmp_path, text).to_dict("list") == {"a": [1, 3], "b": ["x", "y"], "c": [2.5, 4.5]}

    def test_commas_inside_a_semicolon_file(self, tmp_path):
        found = self.read(tmp_path, "note;n\nwell, so far;1\nyes, and, no;2\n")
        assert found["note"].tolist() == ["well, so far", "yes, and, no"]

    def test_byte_order_mark_and_windows_lines(self, tmp_path):
        found = self.read(tmp_path, "a,b\r\n1,2\r\n", "utf-8-sig")
        assert found.to_dict("list") == {"a": [1], "b": [2]}

    def test_quotes_line_breaks_and_emoji(self, tmp_path):
        found = self.read(tmp_path, '🎂,t\n1,"one, ""two""\nthree"\n2,😀\n')
        assert found.to_dict("list") == {"🎂": [1, 2], "t": ['one, "two"\nthree', "😀"]}

    def test_leading_zeros_survive(self, tmp_path):
        found = self.read(tmp_path, "code,n\n007,0.5\n010,0\n")
        assert found["code"].tolist() == ["007", "010"]
        assert found["n"].tolist() == [0.5, 0.0]

    def test_a_missing_whole_number_takes_no_digits_from_the_others(self, tmp_path):
        ids = [10**16 + 1, None, 10**16 + 3]
        frame = pd.DataFrame({"id": pd.array(ids, dtype="Int64"), "x": [1, 2, 3]})
        frame.to_csv(tmp_path / "t.csv", index=False)
        frame.to_parquet(tmp_path / "t.parquet")
        frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
        for name in ("t.csv", "t.parquet", "t.jsonl"):
            found = read_table(tmp_path / name)["id"]
            assert [None if pd.isna(value) else int(value) for value in found] == ids
            assert not found.astype(str).str.endswith(".0").any()

    def test_a_leading_zero_is_no_thousand(self, tmp_path):
        (tmp_path / "t.csv").write_text("a;b\n0.123;1.234,5\n0,5;2.000\n")
        found = open_rows(tmp_path / "t.csv", ReadOptions(decimal=",")).read()
        assert found.astype(float).to_dict("list") == {"a": [0.123, 0.5], "b": [1234.5, 2000.0]}

    def test_types_of_whole_columns(self, tmp_path):
        text = "i,f,b,d,m,s\n1,1.5,true,2024-03-01,NA,a\n2,,False,2024-03-02,,NA\n"
        found = self.read(tmp_path, text)
        kinds = {name: dtype.kind for name, dtype in found.dtypes.items() if name != "s"}
        assert kinds == {"i": "i", "f": "f", "b": "b", "d": "M", "m": "f"}
        assert found["m"].isna().all()
        assert found["s"].isna().tolist() == [False, True]

    def test_an_index_without_a_name_is_a_column(self, tmp_path):
        found = self.read(tmp_path, ",a\n0,5\n1,6\n")
        assert list(found.columns) == ["column 1", "a"]

    def test_rows_are_counted_through_a_large_file(self, tmp_path):
        text = ["n,words"] + [f"{i},{'word ' * 20}" for i in range(40_000)]
        text[30_001] += ",one too many"
        with pytest.raises(InputError, match="row 30001 has 3 values"):
            self.read(tmp_path, "\n".join(text))

    def test_a_quote_left_open_in_a_column_that_is_not_read(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text('n,words\n1,fine\n2,"open\n3,fine\n')
        with pytest.raises(InputError, match="row 2 is never closed"):
            open_rows(path).read(["n"])

    def test_inches_are_no_quotes(self, tmp_path):
        assert self.read(tmp_path, 'pipe,n\n5" wide,1\n6,2\n')["pipe"].tolist() == ['5" wide', "6"]

    @pytest.mark.parametrize("blank", [1, 50])
    def test_blank_lines_before_the_header(self, tmp_path, blank):
        lines = "\n" * blank
        assert self.read(tmp_path, f"{lines}a,b\n1,x\n2,y\n").to_dict("list") == {
            "a": [1, 2],
            "b": ["x", "y"],
        }
        with pytest.raises(InputError, match="row 2 has 3 values but the header has 2"):
            self.read(tmp_path, f"{lines}a,b\n1,x\n2,y,z\n")

    def test_a_long_tail_of_blank_lines(self, tmp_path):
        found = self.read(tmp_path, "a,b\n1,x\n" + "\r\n" * (1 << 19))
        assert found.to_dict("list") == {"a": [1], "b": ["x"]}

    def test_one_column(self, tmp_path):
        assert self.read(tmp_path, "a\n1\n2\n").to_dict("list") == {"a": [1, 2]}


class TestArrays:
    def test_npz_with_names(self, tmp_path):
        X = np.arange(6, dtype=np.float32).reshape(3, 2)
        np.savez(tmp_path / "a.npz", X=X, y=[0, 1, 0], feature_names=["u", "v"], class_names=["no", "yes"])
        found = read_table(tmp_path / "a.npz")
        assert found.to_dict("list") == {"u": [0, 2, 4], "v": [1, 3, 5], "y": ["no", "yes", "no"]}

    def test_npz_in_sparse_parts(self, tmp_path):
        X = sparse.random(8, 5, 0.4, format="csr", random_state=0)
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
        np.savez(tmp_path / "a.npz", y=np.arange(8), **parts)
        found = read_table(tmp_path / "a.npz")
        np.testing.assert_array_equal(found.iloc[:, :5].to_numpy(), X.toarray())
        assert all(isinstance(dtype, pd.SparseDtype) for dtype in found.dtypes[:5])

    def test_npz_of_pictures_is_flattened_and_says_so(self, tmp_path):
        np.savez(tmp_path / "a.npz", X=np.zeros((4, 3, 3)), y=[0, 1, 0, 1])
        data = open_rows(tmp_path / "a.npz")
        assert len(data.columns) == 10
        assert "3 by 3" in data.notes[0]

    def test_h5ad(self, tmp_path):
        X = sparse.csr_matrix(np.eye(4, 6, dtype=np.float32))
        write_h5ad(tmp_path / "a.h5ad", ["B", "T", "B", "T"], X)
        found = read_table(tmp_path / "a.h5ad")
        assert found["kind"].astype(str).tolist() == ["B", "T", "B", "T"]
        assert found["cell"].tolist() == ["c0", "c1", "c2", "c3"]
        np.testing.assert_array_equal(found[[f"g{i}" for i in range(6)]].to_numpy(), X.toarray())

    def test_h5ad_without_rows(self, tmp_path):
        write_h5ad(tmp_path / "a.h5ad", [], np.zeros((0, 3), np.float32))
        with pytest.raises(InputError, match=r"a\.h5ad: X has no rows or no columns"):
            read_table(tmp_path / "a.h5ad")


class TestFolders:
    def test_pictures_by_class(self, tmp_path):
        pictures(tmp_path)
        found = read_table(tmp_path / "source")
        assert found["class"].value_counts().to_dict() == {"cat": 6, "dog": 6}
        assert Path(found["file"].iloc[0]).is_file()

    def test_texts_by_class(self, tmp_path):
        texts(tmp_path, "source/flu/extra.txt", "\ufeffgrüße".encode())
        found = read_table(tmp_path / "source")
        assert found.loc[found["file"].str.endswith("extra.txt"), "text"].tolist() == ["grüße"]
        assert set(found["class"]) == {"cold", "flu"}

    def test_a_text_that_is_no_document(self, tmp_path):
        texts(tmp_path, "source/flu/extra.txt", b"")
        os.truncate(tmp_path / "source/flu/extra.txt", (16 << 20) + 1)
        with pytest.raises(InputError, match=r"extra\.txt: the text is larger than 16 MB; split it"):
            read_table(tmp_path / "source")

    def test_hidden_and_other_files(self, tmp_path):
        pictures(tmp_path)
        (tmp_path / "source" / ".DS_Store").write_bytes(b"\0")
        (tmp_path / "source" / "cat" / "readme.md").write_text("cats")
        data = open_rows(tmp_path / "source")
        assert data.count() == 12
        assert data.notes == (
            f"{tmp_path / 'source'}: 1 files that are neither pictures nor .txt were not read.",
        )

    @pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1", "CMYK"])
    def test_any_mode_becomes_three_colours(self, tmp_path, mode):
        path = tmp_path / "a.tif"
        Image.new("RGB", (30, 20), "white").convert(mode).save(path)
        pixels = read_picture(path, 16)
        assert pixels.shape == (16, 16, 3)
        assert pixels.min() > 250

    def test_sixteen_bits_are_scaled(self, tmp_path):
        path = tmp_path / "a.png"
        Image.fromarray(np.full((20, 20), 32768, dtype=np.uint16)).save(path)
        assert read_picture(path, 8).mean() == pytest.approx(127, abs=1)

    def test_a_turned_photograph_is_set_upright(self, tmp_path):
        pixels = np.zeros((40, 40, 3), dtype=np.uint8)
        pixels[:20] = 255
        turned = Image.fromarray(pixels)
        exif = turned.getexif()
        exif[0x0112] = 3  # upside down
        turned.save(tmp_path / "a.png", exif=exif)
        upright = read_picture(tmp_path / "a.png", 8)
        assert upright[0].mean() < 10
        assert upright[-1].mean() > 245


class TestInMemory:
    @pytest.mark.parametrize(
        "convert", [lambda f: f, polars.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "arrow"]
    )
    def test_frames(self, convert):
        found = as_rows(convert(FRAME), "rows").read()
        assert found["age"].tolist() == FRAME["age"].tolist()
        assert found["ward"].tolist() == FRAME["ward"].tolist()

    def test_capsules(self):
        class Stream:
            def __arrow_c_stream__(self, requested_schema=None):
                return pa.Table.from_pandas(FRAME).__arrow_c_stream__(requested_schema)

        assert as_rows(Stream(), "rows").read()["age"].tolist() == FRAME["age"].tolist()

    @pytest.mark.filterwarnings("ignore:The Dataframe Interchange Protocol:DeprecationWarning")
    def test_interchange(self):
        class Exchange:
            def __dataframe__(self, *args, **options):
                return FRAME[["age"]].__dataframe__(*args, **options)

        assert as_rows(Exchange(), "rows").read()["age"].tolist() == FRAME["age"].tolist()

    def test_rows_are_rows_already(self):
        rows = as_rows(FRAME, "rows")
        assert as_rows(rows, "other") is rows

    def test_batches_are_slices(self):
        parts = list(as_rows(FRAME, "rows").batches(["age"], 15))
        assert [len(part) for part in parts] == [15, 15, 10]
        assert parts[2]["age"].tolist() == FRAME["age"].iloc[30:].tolist()
        assert parts[2].index.tolist() == list(range(10))

    def test_arrays_are_sent_elsewhere(self):
        with pytest.raises(TypeError, match="PULSE"):
            as_rows(np.zeros((3, 2)), "source")

    def test_the_frame_is_not_changed(self):
        frame = FRAME.set_index("ward")
        before = frame.copy()
        as_rows(frame, "rows").read()
        pd.testing.assert_frame_equal(frame, before)


class TestPredictions:
    BATCHES = (
        pd.DataFrame({"id": ["a", "b"], "predicted": ["x", "y"], "novel": np.float32([0.1, 0.2])}),
        pd.DataFrame({"id": ["c"], "predicted": ["x"], "novel": np.float32([0.3])}),
    )

    def test_parquet_and_csv_hold_the_same(self, tmp_path):
        counts = write_predictions(self.BATCHES, tmp_path / "p.parquet", tmp_path / "p.csv")
        assert counts == {"x": 2, "y": 1}
        one = pd.read_parquet(tmp_path / "p.parquet")
        assert one["id"].tolist() == ["a", "b", "c"]
        assert one["novel"].dtype == np.float32
        two = pd.read_csv(tmp_path / "p.csv")
        np.testing.assert_allclose(two["novel"], one["novel"])

    def test_other_programs_read_them(self, tmp_path):
        path = tmp_path / "p.parquet"
        write_predictions(self.BATCHES, path)
        assert polars.read_parquet(path)["predicted"].to_list() == ["x", "y", "x"]
        found = duckdb.sql(f"select count(*) from '{path}' where predicted = 'x'").fetchall()
        assert found == [(2,)]


def stage_and_fail(out: Path, error: BaseException) -> None:
    with staged_folder(out) as draft:
        (draft / "mix.json").write_text("2")
        raise error


class TestStaging:
    def test_a_folder_appears_at_the_end(self, tmp_path):
        out = tmp_path / "deep" / "run"
        with staged_folder(out) as draft:
            (draft / "a.txt").write_text("a")
            assert not out.exists()
        assert [path.name for path in out.iterdir()] == ["a.txt"]
        assert [path.name for path in out.parent.iterdir()] == ["run"]

    def test_nothing_is_left_after_an_error(self, tmp_path):
        with pytest.raises(KeyboardInterrupt):
            stage_and_fail(tmp_path / "deep" / "run", KeyboardInterrupt())
        assert list(tmp_path.iterdir()) == []

    def test_an_earlier_run_is_replaced_or_kept_whole(self, tmp_path):
        out = tmp_path / "run"
        with staged_folder(out) as draft:
            (draft / "mix.json").write_text('{"format": "urn:osls:mix:1"}')
        with pytest.raises(RuntimeError):
            stage_and_fail(out, RuntimeError())
        assert (out / "mix.json").read_text() == '{"format": "urn:osls:mix:1"}'
        with staged_folder(out, overwrite=True) as draft:
            (draft / "mix.json").write_text("3")
        assert (out / "mix.json").read_text() == "3"
        assert [path.name for path in tmp_path.iterdir()] == ["run"]

    def test_an_empty_folder_and_an_earlier_run_may_be_used(self, tmp_path):
        out = tmp_path / "run"
        out.mkdir()
        check_destination(out, overwrite=False)
        (out / "mix.json").write_text('{"format": "urn:osls:mix:1"}')
        check_destination(out, overwrite=True)
        with pytest.raises(InputError, match="exists already"):
            check_destination(out, overwrite=False)

    def test_a_file_is_replaced_only_if_asked(self, tmp_path):
        out = tmp_path / "p.csv"
        with staged_file(out, overwrite=False) as draft:
            assert draft.suffix == ".csv"
            draft.write_text("1")
        with pytest.raises(InputError, match="--overwrite"), staged_file(out, overwrite=False):
            pass
        with pytest.raises(RuntimeError), staged_file(out, overwrite=True) as draft:
            raise RuntimeError
        assert out.read_text() == "1"
        assert os.listdir(tmp_path) == ["p.csv"]

    def test_a_file_cannot_take_the_place_of_a_folder(self, tmp_path):
        with (
            pytest.raises(InputError, match="name a file with --out"),
            staged_file(tmp_path, overwrite=True),
        ):
            pass

    def test_folders_that_were_made_for_a_file_go_with_it(self, tmp_path):
        with pytest.raises(RuntimeError), staged_file(tmp_path / "a" / "b" / "p.csv", overwrite=False):
            raise RuntimeError
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["csv", "parquet", "arrow", "jsonl"])
def test_damaged_files_never_crash(written, name):
    data = written[name].read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        damaged = np.frombuffer(data, np.uint8).copy()
        damaged[rng.integers(0, len(data), 4)] = rng.integers(0, 256, 4)
        written[name].write_bytes(damaged.tobytes())
        try:
            found = read_table(written[name])
            assert isinstance(found.to_csv(), str)  # every value can be looked at
        except InputError:
            refused += 1
    assert refused > 0


def test_only_the_columns_asked_for_are_read(tmp_path):
    table = pa.table({"a": [1, 2], "b": pa.array([[1], [2]])})
    pq.write_table(table, tmp_path / "a.parquet")
    assert next(open_rows(tmp_path / "a.parquet").batches(["a"]))["a"].tolist() == [1, 2]


def test_rows_that_are_gone_since_the_file_was_opened(written):
    data = open_rows(written["parquet"])
    FRAME[:0].to_parquet(written["parquet"])
    found = data.read(["age", "dose"])
    assert list(found.columns) == ["age", "dose"]
    assert len(found) == 0


def test_empty_batches_of_an_arrow_file_are_passed_over(tmp_path):
    batch = pa.record_batch({"a": [1, 2]})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), batch.schema) as file:
        for part in (batch, batch[:0], batch[:1]):
            file.write_batch(part)
    assert [part["a"].tolist() for part in open_rows(tmp_path / "a.arrow").batches()] == [[1, 2], [1]]


def test_blank_lines_between_json_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text('\n {"a": 1}\n\n{"a": 2}\n\n')
    assert read_table(tmp_path / "a.jsonl")["a"].tolist() == [1, 2]


def test_types_are_inferred_of_strings_alone():
    frame = pd.DataFrame({"a": [1.5, 2.0], "b": ["1", "2"]})
    assert infer_types(frame).to_dict("list") == {"a": [1.5, 2.0], "b": [1, 2]}


def test_an_array_of_objects_may_span_lines(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([{"a": 1}, {"b": 2}], indent=2))
    found = read_table(tmp_path / "a.json")
    assert found["a"].iloc[0] == 1
    assert found["a"].isna().tolist() == [False, True]
