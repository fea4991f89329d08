"""Files as people have them: packed, in parts, in workbooks and databases, on servers; files of scores."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import sqlite3
import threading
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs
from typer.testing import CliRunner

import osls
from malformed import rows
from osls.app.cli import app
from osls.app.files import InputError, open_rows, read_table
from osls.app.files.arrival import at_hand
from osls.app.options import AdaptOptions, ReadOptions, read_options

FRAME = rows()
CSV = FRAME.to_csv(index=False)


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def refuse(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 2, result.output
    return result.output


def assert_same(found: pd.DataFrame) -> None:
    assert list(found.columns) == list(FRAME.columns)
    assert found["age"].tolist() == FRAME["age"].tolist()
    np.testing.assert_allclose(found["dose"].astype(float), FRAME["dose"])
    assert found["kind"].tolist() == FRAME["kind"].tolist()


# -- Packed, in parts, in other encodings ------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "codec"), [("gz", "gzip"), ("zst", "zstd"), ("bz2", "bz2")])
def test_packed_files(tmp_path, suffix, codec):
    path = tmp_path / f"rows.csv.{suffix}"
    with pa.output_stream(path, compression=codec) as file:
        file.write(CSV.encode())
    data = open_rows(path)
    assert data.name == str(path)
    assert_same(data.read())
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=r"rows\.csv\.\w+: cannot be unpacked"):
        open_rows(path)


def test_messages_about_a_packed_file_have_its_own_name(tmp_path):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n3\n"))
    with pytest.raises(InputError, match=r"rows\.csv\.gz: row 2 has 1 values"):
        open_rows(path).read()
    path.write_bytes(gzip.compress(b"\xff\xff,b\n"))
    with pytest.raises(InputError, match=r"rows\.csv\.gz: line 1 is not in UTF-8"):
        open_rows(path)


def test_a_copy_goes_with_its_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    data = open_rows(tmp_path / "a.csv.gz")
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    del data
    assert not list((tmp_path / "scratch").iterdir())


def test_a_small_file_that_fills_the_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("osls.app.files.arrival._BOMB_BYTES", 1 << 20)
    path = tmp_path / "rows.csv.zst"
    with pa.output_stream(path, compression="zstd") as file:
        for _ in range(3):
            file.write(b"0" * (1 << 20))
    with pytest.raises(InputError, match="times its size"):
        open_rows(path)


def test_parts_in_a_folder_and_by_wildcard(tmp_path):
    FRAME[:15].to_parquet(tmp_path / "part-0.parquet")
    FRAME[15:][FRAME.columns[::-1]].to_parquet(tmp_path / "part-1.parquet")
    (tmp_path / "_SUCCESS").touch()
    for path in (tmp_path, tmp_path / "part-*.parquet"):
        data = open_rows(path)
        assert data.count() == len(FRAME)
        assert_same(data.read())
    assert open_rows(tmp_path / "part-0*").count() == 15
    with pytest.raises(InputError, match="no file has such a name"):
        open_rows(tmp_path / "none-*")


def test_parts_that_do_not_fit(tmp_path):
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    FRAME.drop(columns="age").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(InputError, match=r"b\.csv: the column 'age' is in only one"):
        open_rows(tmp_path)
    FRAME.to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"different kinds \(\.csv \.parquet\)"):
        open_rows(tmp_path)


def test_how_to_read_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("größe:preis\n1,5:1.234,50\n2:7,25\n".encode("cp1252"))
    found = read_table(path, ReadOptions(sep=":", encoding="cp1252", decimal=","))
    assert found.to_dict("list") == {"größe": [1.5, 2.0], "preis": [1234.5, 7.25]}
    with pytest.raises(InputError, match="is not in ascii"):
        read_table(path, ReadOptions(encoding="ascii"))
    with pytest.raises(InputError, match="encoding 'klingon' is not known"):
        read_table(path, ReadOptions(encoding="klingon"))


def test_words_that_hold_a_comma_are_no_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("a;b\nx,y;1.2.2024\n1,2,3;3.2.2024\n")
    found = read_table(tmp_path / "a.csv", ReadOptions(decimal=","))
    assert found.to_dict("list") == {"a": ["x,y", "1,2,3"], "b": ["1.2.2024", "3.2.2024"]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sep": "::"}, "one character"),
        ({"decimal": ";"}, "decimal must be"),
        ({"table": "a", "query": "b"}, "not both"),
    ],
)
def test_how_not_to_read(options, message):
    with pytest.raises(ValueError, match=message):
        ReadOptions(**options)
    assert ReadOptions(sep="tab").sep == "\t"


def test_the_command_says_how_the_files_were_read():
    line = AdaptOptions(n_jobs=-1).as_command(
        "a.db", "a.db", Path("run"), read_options(";", None, ",", ["x", "y"])
    )
    assert line.endswith("--sep ';' --decimal , --table x --table y")
    both = read_options(None, None, ".", None, ["SELECT 1"])
    assert AdaptOptions(n_jobs=-1).as_command("a", "b", Path("c"), both).endswith("--query 'SELECT 1'")
    with pytest.raises(ValueError, match="--table is given once"):
        read_options(None, None, ".", ["a", "b", "c"])


# -- Workbooks and databases ------------------------------------------------------------------------


def test_excel(tmp_path):
    path = tmp_path / "book.xlsx"
    with pd.ExcelWriter(path) as book:
        FRAME.to_excel(book, sheet_name="labelled", index=False)
        pd.DataFrame({"note": ["by hand"]}).to_excel(book, sheet_name="notes", index=False)
    data = open_rows(path)
    assert_same(data.read())
    assert "the sheet 'labelled' was read" in data.notes[0]
    with pytest.raises(InputError, match=r"no id column 'kase'.*'labelled' was read.*--table names one"):
        osls.adapt(path, path, label="kind", id="kase", ignore_target_label=True)
    assert read_table(path, ReadOptions(table="notes"))["note"].tolist() == ["by hand"]
    with pytest.raises(InputError, match="no sheet 'label'; did you mean 'labelled'"):
        open_rows(path, ReadOptions(table="label"))
    with pytest.raises(InputError, match="takes no --query"):
        open_rows(path, ReadOptions(query="SELECT 1"))


@pytest.fixture(params=["sqlite", "duckdb"])
def database(request, tmp_path):
    path = tmp_path / "shop.db"
    if request.param == "sqlite":
        with sqlite3.connect(path) as connection:
            FRAME.to_sql("labelled", connection, index=False)
        connection.close()
    else:
        with duckdb.connect(path) as connection:
            connection.register("frame", FRAME)
            connection.execute("CREATE TABLE labelled AS SELECT * FROM frame")
    return path


def test_databases(database):
    assert_same(read_table(database))
    assert_same(read_table(database, ReadOptions(table="labelled")))
    young = read_table(database, ReadOptions(query="SELECT age FROM labelled WHERE age < 40"))
    assert young["age"].tolist() == FRAME["age"][FRAME["age"] < 40].tolist()
    for options, message in (
        ({"table": "label"}, "did you mean 'labelled'"),
        ({"query": "SELECT nonsense"}, "cannot read it"),
        ({"query": "SELECT * FROM labelled WHERE age < 0"}, "no rows"),
        ({"query": "DROP TABLE labelled"}, "cannot read it"),
    ):
        with pytest.raises(InputError, match=message):
            read_table(database, ReadOptions(**options))


def test_which_table(tmp_path):
    with duckdb.connect(tmp_path / "a.duckdb") as connection:
        connection.execute("CREATE TABLE one AS SELECT 1 AS x; CREATE TABLE two AS SELECT 2 AS x")
    with pytest.raises(InputError, match=r"which table\? There are 2 \('one', 'two'\)"):
        open_rows(tmp_path / "a.duckdb")


def test_a_database_cannot_read_other_files(tmp_path):
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with duckdb.connect(tmp_path / "a.duckdb") as connection:
        connection.execute(f"CREATE VIEW spy AS SELECT * FROM read_csv('{tmp_path}/secret.csv')")
    with pytest.raises(InputError, match="DuckDB cannot read it"):
        open_rows(tmp_path / "a.duckdb")


# -- Addresses --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bucket():
    """A server that speaks S3, with rows in it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    names = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    store = fs.S3FileSystem(endpoint_override=endpoint, allow_bucket_creation=True)
    store.create_dir("shop")
    for name, text in (
        ("rows.csv", CSV),
        ("parts/a.csv", CSV),
        ("parts/b.csv", CSV),
        ("bad.csv", "a,b\n1\n"),
    ):
        with store.open_output_stream(f"shop/{name}") as file:
            file.write(text.encode())
    yield "s3://shop"
    server.stop()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def test_objects_in_a_store(bucket):
    data = open_rows(f"{bucket}/rows.csv")
    assert data.name == "s3://shop/rows.csv"
    assert_same(data.read())
    assert open_rows(f"{bucket}/parts").count() == 2 * len(FRAME)
    assert open_rows(f"{bucket}/parts/*.csv").count() == 2 * len(FRAME)
    with pytest.raises(InputError, match=r"s3://shop/none\.csv: there is no such object"):
        open_rows(f"{bucket}/none.csv")
    with pytest.raises(InputError, match=r"s3://shop/none/\*\.csv: there is no such object"):
        open_rows(f"{bucket}/none/*.csv")
    with pytest.raises(InputError, match=r"s3://shop/bad\.csv: row 1 has 1 values"):
        open_rows(f"{bucket}/bad.csv").read()
    with at_hand(f"{bucket}/rows.csv") as path:
        assert path.read_text() == CSV
    assert not path.exists()


def test_files_on_a_server(tmp_path):
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(CSV.encode()))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(tmp_path))

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert_same(read_table(f"{address}/rows.csv.gz?version=1"))
        with pytest.raises(InputError, match="the server answered 404"):
            open_rows(f"{address}/none.csv")
        server.shutdown()
    with pytest.raises(InputError, match="could not be fetched"):
        open_rows(f"{address}/rows.csv.gz")


def test_addresses_that_cannot_be_read(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT", raising=False)
    with pytest.raises(InputError, match="begin with ftp://"):
        open_rows("ftp://host/rows.csv")
    with pytest.raises(InputError, match="AZURE_STORAGE_ACCOUNT"):
        open_rows("az://container/rows.csv")


# -- Commands ---------------------------------------------------------------------------------------


def test_a_dry_run_shows_what_would_be_used(tmp_path):
    FRAME.assign(case=[f"c{i}" for i in range(40)]).to_csv(tmp_path / "source.csv", index=False)
    target = rows(30, labelled=False).assign(case=[f"d{i}" for i in range(30)], bed=1)
    target.to_csv(tmp_path / "target.csv", index=False)
    words = ["adapt", "--source", tmp_path / "source.csv", "--target", tmp_path / "target.csv"]
    text = run(*words, "--label", "kind", "--dry-run")
    assert "40 rows, 2 classes in 'kind'" in text
    assert "'cold': 20 rows (50" in text
    assert "Target:" in text
    assert "30 rows" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["age", "number", "1"] in lines
    assert ["ward", "category", "3"] in lines
    assert "Left out 'bed': only in the target." in text
    assert "'case': a different value in nearly every row" in text
    assert "A fit on 70 rows takes about" in text
    assert "Nothing was fitted." in text
    assert {path.name for path in tmp_path.iterdir()} == {"source.csv", "target.csv"}
    assert "--out" in refuse(*words, "--label", "kind")


def test_a_dry_run_of_texts(tmp_path):
    for side in ("source/a", "source/b", "target/x"):
        (tmp_path / side).mkdir(parents=True)
        for i in range(12):
            (tmp_path / side / f"{i}.txt").write_text(f"{side} says {i} words about it")
    words = ["--source", tmp_path / "source", "--target", tmp_path / "target", "--text", "tfidf"]
    text = run("adapt", *words, "--dry-run")
    assert "text, as hashed words" in text
    assert "A fit on 36 rows takes about" in text
    swapped = refuse(
        "adapt", "--source", tmp_path / "target" / "x", "--target", tmp_path / "source", "--dry-run"
    )
    assert "swapped?" in swapped


@pytest.fixture
def scores(tmp_path):
    rng = np.random.default_rng(0)
    known, new = rng.normal(size=600), np.append(rng.normal(size=800), rng.normal(7, 1, 200))
    pd.DataFrame({"score": known}).to_csv(tmp_path / "known.csv", index=False)
    pd.DataFrame({"score": new}).to_csv(tmp_path / "new.csv", index=False)
    np.savetxt(tmp_path / "plain.csv", new)
    return tmp_path


def test_share_of_two_files_of_scores(scores):
    answer = json.loads(run("share", scores / "known.csv", scores / "new.csv", "--json"))
    assert abs(answer["novel_share"] - 0.2) < 0.05
    assert answer["interval"][0] < 0.2 < answer["interval"][1]
    assert answer["p_value"] < 0.01
    assert answer["rows"] == {"known": 600, "new": 1000}
    text = run("share", scores / "known.csv", scores / "new.csv")
    assert "of the new rows are novel (95% interval:" in text
    assert "600 known and 1,000 new scores" in text


def test_share_without_headers_and_the_wrong_way_round(scores):
    plain = json.loads(run("share", scores / "known.csv", scores / "plain.csv", "--json"))
    assert plain["rows"]["new"] == 1000
    turned = run("share", scores / "known.csv", scores / "new.csv", "--higher", "known")
    assert "add --higher new" in turned
    alike = json.loads(run("share", scores / "known.csv", scores / "known.csv", "--json"))
    assert alike["novel_share"] < 0.05
    assert alike["notes"] == []


def test_scores_that_cannot_be_used(scores):
    two = pd.DataFrame({"a": [1.0] * 20, "b": [2.0] * 20})
    two.to_csv(scores / "two.csv", index=False)
    assert "which column holds the scores?" in refuse("share", scores / "two.csv", scores / "new.csv")
    assert "did you mean" in refuse("share", scores / "known.csv", scores / "new.csv", "--column", "scor")
    (scores / "few.csv").write_text("s\n1\n2\n")
    assert "at least 10" in refuse("share", scores / "few.csv", scores / "new.csv")
    (scores / "bad.csv").write_text("s\n" + "1\n" * 11 + "high\n")
    wrong = refuse("share", scores / "bad.csv", scores / "new.csv")
    assert "row 12 has 'high'" in wrong
    assert "--ignore" not in wrong  # which is no option of this command
    (scores / "gap.csv").write_text("s,t\n" + "1,1\n" * 11 + ",1\n")
    assert "no score" in refuse("share", scores / "gap.csv", scores / "new.csv", "--column", "s")
    (scores / "far.csv").write_text("s\n" + "1\n" * 11 + "inf\n")
    assert "row 12 has no score, or an infinite one" in refuse(
        "share", scores / "far.csv", scores / "new.csv"
    )
    (scores / "comma.csv").write_text("s\n" + '"1,234"\n' * 12)
    assert "may mean 1234 or 1.234" in refuse("share", scores / "comma.csv", scores / "new.csv")
    assert "level must lie" in refuse("share", scores / "known.csv", scores / "new.csv", "--level", 2)
