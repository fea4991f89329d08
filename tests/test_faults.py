"""What is left on disk when something breaks in the middle: processes, signals, full and read-only disks.

Told elsewhere, and not repeated here: a kill at any step of ``save`` (test_persist), a kill and Ctrl-C during
``osls bench`` (test_bench) and ``osls monitor --watch`` (test_monitor), a connection that is cut
(test_datasets), archives and pictures that unpack to far more than they are (test_malformed).
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from conftest import wait_until
from osls._core.writing import sweep
from osls.app.adapt import adapt
from osls.app.bench.store import Store
from osls.app.cli import app
from osls.app.files import InputError, open_rows, read_table
from osls.app.files.staging import staged_folder
from osls.app.report.page import write_atomically
from osls.datasets.download import RemoteFile, download
from osls.persist import load, save
from osls.testing import blobs

RUN = ["mix.json", "model", "predictions.csv", "predictions.parquet", "report.html"]
LINUX_ROOT = sys.platform.startswith("linux") and os.geteuid() == 0


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    X, y = blobs(sizes=(60, 60, 60))
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame[y < 2].assign(kind=np.array(["ant", "bee"])[y[y < 2]])[::2].to_csv(
        folder / "source.csv", index=False
    )
    frame[1::2].to_csv(folder / "target.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def answer(tables):
    fast = {"source_classifier": "linear", "discriminator": "linear", "n_folds": 2, "n_bootstrap": 5}
    return adapt(tables / "source.csv", tables / "target.csv", "kind", **fast)


# -- Killed -----------------------------------------------------------------------------------------


def die_at(step: int, work) -> bool:
    """Fork, kill the child before its step-th change to the disk, and say whether it was killed."""
    child = os.fork()
    if child == 0:
        count = 0

        def counted(function):
            def run(*args, **options):
                nonlocal count
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **options)

            return run

        for name in ("mkdir", "fsync", "rename", "replace", "rmdir", "unlink", "chmod"):
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def visible(folder: Path) -> list[str]:
    return [name for name in names(folder) if not name.startswith(".")]


def write_quickly(out: Path, content: str) -> None:
    """The steps of ``osls adapt`` on the disk, without the time that a report takes."""
    with staged_folder(out, overwrite=True) as folder:
        (folder / "mix.json").write_text(json.dumps({"format": "urn:osls:mix:1", "content": content}))
        save(content, folder / "model")


def content_of(out: Path) -> str:
    assert names(out) == ["mix.json", "model"]
    assert load(out / "model") == json.loads((out / "mix.json").read_text())["content"]
    return load(out / "model")


def test_a_run_killed_at_any_step_is_whole_or_not_there(tmp_path):
    """Left on disk: at most one hidden folder, which the next run deletes."""
    out, seen, step, killed = tmp_path / "run", set(), 0, True
    while killed:
        step += 1
        shutil.rmtree(out, ignore_errors=True)
        killed = die_at(step, lambda: write_quickly(out, "new"))
        seen.add(tuple(visible(tmp_path)))
        assert not out.exists() or content_of(out) == "new"
    assert step > 8
    assert seen == {(), ("run",)}
    assert die_at(5, lambda: write_quickly(out, "new"))
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".run.")]
    (tmp_path / ".run.cfg").mkdir()  # of somebody else
    os.utime(tmp_path / ".run.cfg", (0, 0))
    write_quickly(out, "newer")
    assert names(tmp_path) == [".run.cfg", "run"]


def test_a_run_killed_while_it_replaces_another_leaves_one_of_them(tmp_path):
    """Left on disk: the old run or the new one; between two renames, the old one under a hidden name."""
    out, step, killed, kept = tmp_path / "run", 0, True, set()
    while killed:
        step += 1
        for path in tmp_path.iterdir():
            shutil.rmtree(path)
        write_quickly(out, "old")
        killed = die_at(step, lambda: write_quickly(out, "new"))
        aside = list(tmp_path.glob(".run.old.*"))
        kept.add(content_of(out) if out.exists() else content_of(aside[0]) + " aside")
        sweep(tmp_path)
        assert names(tmp_path) == ["run"]
    assert kept == {"old", "new", "old aside"}


def test_a_whole_run_killed_in_the_middle(answer, tmp_path):
    """Left on disk: a hidden draft; the next run is whole."""
    out = tmp_path / "run"
    assert die_at(6, lambda: answer.write(out))
    assert visible(tmp_path) == []
    answer.write(out)
    assert names(out) == RUN
    assert load(out / "model").classes == answer.adapted.classes


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "osls.app.cli", *map(str, arguments)]


def adapt_command(tables: Path, out: Path) -> list[str]:
    return command(
        *("adapt", "--source", tables / "source.csv", "--target", tables / "target.csv"),
        *("--label", "kind", "--fast", "--out", out),
    )


def started_fitting(process) -> bool:
    """Whether the process has loaded torch, which is after the input was read and before it is fitted."""
    try:
        return "libtorch" in Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks into /proc to know when to strike")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)], ids=["kill", "ctrl-c"]
)
def test_adapt_that_is_ended_while_it_fits_leaves_nothing(number, code, tables, tmp_path):
    """Left on disk: nothing; the same command then does the whole work."""
    process = subprocess.Popen(
        adapt_command(tables, tmp_path / "run"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: started_fitting(process) or process.poll() is not None)
    process.send_signal(number)
    printed, errors = process.communicate(timeout=900)
    assert process.returncode == code, (printed, errors)
    assert "Traceback" not in errors
    assert printed == ""
    assert names(tmp_path) == []


# -- A full disk ------------------------------------------------------------------------------------


def mounted(path: Path, options: str) -> None:
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", path], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 64 KB, real, not a mock: 16 pages."""
    if not LINUX_ROOT:
        pytest.skip("mounting a small disk needs root on Linux")
    disk = tmp_path / "disk"
    mounted(disk, "size=64k")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def fill(disk: Path, leave: int = 0) -> None:
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "filler").write_bytes(b"x" * (free - leave))


class TestFullDisk:
    def test_adapt(self, answer, small_disk):
        """Left on disk: nothing of the run."""
        with pytest.raises(OSError, match="No space left"):
            answer.write(small_disk / "sub" / "run")
        assert names(small_disk) == []

    def test_a_run_that_is_to_be_replaced(self, answer, small_disk):
        """Left on disk: the old run, whole."""
        (small_disk / "run").mkdir()
        (small_disk / "run" / "mix.json").write_text('{"format": "urn:osls:mix:1"}')
        with pytest.raises(OSError, match="No space left"):
            answer.write(small_disk / "run", overwrite=True)
        assert listing(small_disk) == ["run", "run/mix.json"]

    def test_predict(self, answer, tables, small_disk, tmp_path):
        """Left on disk: nothing of the predictions; the command says why in one sentence."""
        save(answer.adapted, tmp_path / "model")
        fill(small_disk)
        arguments = ["predict", tmp_path / "model", tables / "target.csv", "--out", small_disk / "p.csv"]
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        assert result.exit_code == 2, result.output
        assert "No space left" in result.stderr
        assert result.stderr.count("\n") == 1
        assert names(small_disk) == ["filler"]

    def test_save(self, small_disk):
        """Left on disk: the earlier model, which loads."""
        save({"rows": np.arange(10)}, small_disk / "model")
        with pytest.raises(OSError, match="No space left"):
            save({"rows": np.arange(100_000)}, small_disk / "model")
        assert names(small_disk) == ["model"]
        np.testing.assert_array_equal(load(small_disk / "model")["rows"], np.arange(10))

    def test_rows_of_a_benchmark(self, small_disk):
        """Left on disk: the rows that were finished, each whole."""
        store = Store(small_disk / "out")
        rows = ({"key": f"{i:04d}", "error": None, "started": f"{i:04d}"} for i in range(1000))
        with pytest.raises(OSError, match="No space left"):
            store.write(rows)
        kept = store.rows()
        assert [row["key"] for row in kept] == [f"{i:04d}" for i in range(len(kept))]
        assert 0 < len(kept) < 1000
        assert not [name for name in names(small_disk / "out" / "runs") if name.startswith(".")]

    def test_pages_and_states(self, small_disk):
        """Left on disk: the earlier file."""
        write_atomically(small_disk / "state.json", "{}")
        with pytest.raises(OSError, match="No space left"):
            write_atomically(small_disk / "state.json", "x" * 200_000)
        assert (small_disk / "state.json").read_text() == "{}"
        assert names(small_disk) == ["state.json"]

    def test_download(self, small_disk, server):
        """Left on disk: what was fetched, marked as a part; with more room it goes on from there."""
        content = os.urandom(200_000)
        remote = remote_file(server(content), content)
        with pytest.raises(ConnectionError, match=r"No space left.*Run again to resume"):
            download(remote, small_disk / "data.bin")
        assert names(small_disk) == ["data.bin.part"]
        subprocess.run(["mount", "-o", "remount,size=1m", small_disk], check=True)
        assert download(remote, small_disk / "data.bin").read_bytes() == content
        assert names(small_disk) == ["data.bin"]


def test_a_limit_on_the_size_of_files_is_like_a_full_disk(tmp_path):
    """Without root: the system refuses to let a file grow. Left on disk: the earlier file."""
    code = """
import resource, signal, sys
from pathlib import Path
from osls.app.report.page import write_atomically
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
path = Path(sys.argv[1])
write_atomically(path, "old")
try:
    write_atomically(path, "x" * 20_000)
except OSError as error:
    print(error.strerror)
"""
    path = tmp_path / "page.html"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout == "File too large\n"
    assert path.read_text() == "old"
    assert names(tmp_path) == ["page.html"]


# -- A place that may not be written to -------------------------------------------------------------


@pytest.fixture
def read_only(tmp_path):
    """A folder that not even root may write to: a disk that is mounted read-only."""
    folder = tmp_path / "read only"
    if not LINUX_ROOT:
        folder.mkdir(mode=0o555)
        yield folder
        folder.chmod(0o755)
        return
    mounted(folder, "ro")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def invoke(*arguments: object):
    return CliRunner().invoke(app, list(map(str, arguments)))


class TestReadOnly:
    def test_adapt_says_so_before_it_fits(self, tables, read_only, monkeypatch):
        from osls import PULSE

        monkeypatch.setattr(PULSE, "fit", None)
        result = invoke(*adapt_command(tables, read_only / "run")[3:])
        assert result.exit_code == 2, result.output
        assert "cannot be written" in result.stderr
        assert names(read_only) == []

    def test_predict(self, answer, tables, read_only, tmp_path):
        save(answer.adapted, tmp_path / "model")
        result = invoke("predict", tmp_path / "model", tables / "target.csv", "--out", read_only / "p.csv")
        assert result.exit_code == 2, result.output
        assert "cannot be written" in result.stderr

    def test_save(self, read_only):
        with pytest.raises(OSError, match=r"Read-only|Permission"):
            save(1, read_only / "model")
        assert names(read_only) == []

    def test_bench(self, read_only, tmp_path):
        (tmp_path / "s.yml").write_text("name: s\ndata: [digits]\nmethods: [source-only]\ndraws: 1\n")
        result = invoke("bench", "run", tmp_path / "s.yml", "--out", read_only / "out")
        assert result.exit_code == 2, result.output
        assert "Read-only" in result.output or "Permission" in result.output

    def test_monitor(self, answer, tables, read_only, tmp_path):
        save(answer.adapted, tmp_path / "model")
        result = invoke(
            *("monitor", tmp_path / "model", tables / "target.csv"),
            *("--state", read_only / "state.json", "--out", tmp_path / "timeline.html"),
        )
        assert result.exit_code == 2, result.output
        assert "Read-only" in result.output or "Permission" in result.output


def test_the_demo_says_so_before_it_fits(tmp_path):
    (tmp_path / "notes").write_text("mine")
    result = invoke("demo", "--out", tmp_path)
    assert result.exit_code == 2
    assert "is a folder; name a file with --out." in result.stderr
    result = invoke("demo", "--out", tmp_path / "notes" / "demo.html")
    assert result.exit_code == 2
    assert "is no folder" in result.stderr


def test_a_path_through_a_file(tables, tmp_path):
    """Left on disk: the file, as it was."""
    (tmp_path / "notes").write_text("mine")
    result = invoke(*adapt_command(tables, tmp_path / "notes" / "run")[3:])
    assert result.exit_code == 2
    assert "is no folder" in result.stderr
    assert (tmp_path / "notes").read_text() == "mine"


# -- A download that is killed ----------------------------------------------------------------------


def remote_file(url: str, content: bytes) -> RemoteFile:
    return RemoteFile(f"{url}/data.bin", "sha256:" + hashlib.sha256(content).hexdigest())


@pytest.fixture
def server():
    """A web server that sends the first part, waits as long as it is told to, and sends the rest."""
    running, hold = [], threading.Event()
    hold.set()

    def start(content: bytes) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                first = int(self.headers.get("Range", "bytes=0-")[6:-1])
                start.log.append(first)
                self.send_response(206 if first else 200)
                self.send_header("Content-Length", str(len(content) - first))
                self.end_headers()
                try:
                    self.wfile.write(content[first : first + 100_000])
                    self.wfile.flush()
                    hold.wait()
                    self.wfile.write(content[first + 100_000 :])
                except OSError:  # the client is gone, which is what is tested
                    self.close_connection = True

            def log_message(self, *args):
                pass

        httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((httpd, thread))
        return f"http://127.0.0.1:{httpd.server_address[1]}"

    start.log, start.hold = [], hold
    yield start
    hold.set()
    for httpd, thread in running:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def test_a_download_that_is_killed_goes_on_where_it_was(server, tmp_path):
    """Left on disk: the bytes that had come, marked as a part."""
    content = os.urandom(300_000)
    remote = remote_file(server(content), content)
    server.hold.clear()
    code = f"""
from pathlib import Path
from osls.datasets.download import RemoteFile, download
download({remote!r}, Path({str(tmp_path / "data.bin")!r}))
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    part = tmp_path / "data.bin.part"
    wait_until(lambda: part.exists() and part.stat().st_size >= 60_000)
    process.kill()
    process.wait()
    server.hold.set()
    have = part.stat().st_size
    assert names(tmp_path) == ["data.bin.part"]
    assert part.read_bytes() == content[:have]
    assert download(remote, tmp_path / "data.bin").read_bytes() == content
    assert server.log == [0, have]
    assert names(tmp_path) == ["data.bin"]


# -- Files that claim to be larger than memory ------------------------------------------------------


def npz_claiming(path: Path, header: str) -> None:
    text = header.encode().ljust(117) + b"\n"
    npy = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"\0" * 64
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", npy)


class TestLargerThanMemory:
    @pytest.mark.parametrize(
        "shape", ["(1000000000000, 8)", "(10000000, 10000000)", "(2305843009213693952, 8)"]
    )
    def test_npz(self, shape, tmp_path):
        npz_claiming(tmp_path / "a.npz", f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}")
        with pytest.raises(InputError, match=r"a\.npz"):
            read_table(tmp_path / "a.npz")

    def test_sparse_columns(self, tmp_path):
        parts = {"data": [1.0], "indices": [0], "indptr": [0, 1], "shape": [1, 2**40]}
        np.savez(tmp_path / "a.npz", **{key: np.array(value) for key, value in parts.items()})
        with pytest.raises(InputError, match="columns"):
            read_table(tmp_path / "a.npz")

    def test_tensors_of_a_model(self, tmp_path):
        from osls.persist import ModelError

        save({"rows": np.arange(10)}, tmp_path / "m")
        header = b'{"t0":{"dtype":"I64","shape":[1000000000000],"data_offsets":[0,8000000000000]}}'
        data = len(header).to_bytes(8, "little") + header
        (tmp_path / "m" / "tensors.safetensors").write_bytes(data)
        with pytest.raises(ModelError):
            load(tmp_path / "m")

    def test_a_long_parquet_file_is_streamed(self, tmp_path):
        """Twenty million rows in a few kilobytes: counted and sampled in less memory than they would need."""
        path = tmp_path / "long.parquet"
        piece = pa.table({"a": np.zeros(1_000_000), "b": pa.array(["x"] * 1_000_000).dictionary_encode()})
        with pq.ParquetWriter(path, piece.schema) as writer:
            for _ in range(20):
                writer.write_table(piece)
        code = f"""
import numpy as np, resource
from osls.app.files import open_rows
rows = open_rows({str(path)!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(rows.count(), len(rows.take(np.arange(0, 20_000_000, 4_000_000))))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        counted, megabytes = done.stdout.splitlines()
        assert counted == "20000000 5"
        assert int(megabytes) < 250  # all of it would be 160 MB of numbers and a gigabyte of strings


@pytest.mark.parametrize("text", ["a,b\n", "a,b\n1,2\n1,2,3\n"], ids=["no rows", "too many values"])
def test_a_file_that_is_refused_does_not_take_the_process_with_it(tmp_path, text):
    """A thread of Arrow that let go of a Python function at the end aborted every second such process."""
    (tmp_path / "rows.csv").write_text(text)
    code = f"""
import sys, torch, sklearn.ensemble
from osls.app.files import InputError, read_table
try:
    read_table({str(tmp_path / "rows.csv")!r})
except InputError:
    sys.exit(2)
"""
    ends = [subprocess.run([sys.executable, "-c", code], capture_output=True).returncode for _ in range(4)]
    assert ends == [2] * 4


def test_reading_has_no_effect_on_the_limits_of_the_process(tables):
    before = resource.getrlimit(resource.RLIMIT_AS)
    assert open_rows(tables / "source.csv").count() == 60
    assert resource.getrlimit(resource.RLIMIT_AS) == before
