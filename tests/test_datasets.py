"""Loaders on small files of the official layouts, downloads from a local server, archives that mean harm."""

from __future__ import annotations

import codecs
import functools
import gzip
import hashlib
import http.server
import io
import itertools
import json
import os
import pickle
import shutil
import struct
import sys
import tarfile
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image
from scipy import sparse
from sklearn.utils import Bunch

from osls.app.bench.draws import texts_of
from osls.datasets import DATASETS, Dataset, Labelled, load_dataset, simulate_osls
from osls.datasets import image_sets as breeds
from osls.datasets.array_sets import CIFAR10, CIFAR100, load_cifar, load_mnist, read_idx
from osls.datasets.download import Origin, RemoteFile, download, unpack
from osls.datasets.image_sets import BREAKHIS_CLASSES, Hierarchy, age_group, image_files, read_image
from osls.datasets.loading import cache_folder, prepared
from osls.datasets.single_cell import log_normalise, variable_genes


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """An empty data folder, and an empty cache beside it."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("OSLS_DATA", str(folder))
    monkeypatch.setenv("OSLS_CACHE", str(tmp_path / "cache"))
    return folder


def save_image(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (12, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def tar_bytes(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


# Known and novel classes of the paper's appendix.
PAPER = {
    "cifar10": (9, 1),
    "cifar100": (85, 15),
    "entity30": (24, 6),
    "newsgroups": (16, 4),
    "breakhis": (6, 2),
    "dermnet": (18, 5),
    "tabula-muris": (28, 29),
    "utkface": (7, 1),
}


class TestRegistry:
    @pytest.mark.parametrize("name", PAPER)
    def test_presets_are_the_papers(self, name):
        dataset = load_dataset(name)
        known, novel = PAPER[name]
        assert dataset.novel == (novel, novel)
        assert dataset.classes == known + novel

    def test_names(self):
        wanted = (
            "digits letter penbased satimage drybean mnist usps avila shuttle covtype newsgroups "
            "newsgroups-bare cifar10 cifar100 entity30 tabula-muris dermnet breakhis breakhis400x utkface "
            "zeisel citeseq pbmc3k worm newsgroups-minilm newsgroups-bare-minilm newsgroups-both "
            "newsgroups-bare-both breakhis400x-effnet cifar10-effnet cifar100-effnet utkface-effnet"
        )
        assert set(DATASETS) == set(wanted.split())
        assert all(name == dataset.name for name, dataset in DATASETS.items())

    @pytest.mark.parametrize("name", sorted(set(DATASETS) - {"digits"}))
    def test_missing_data_is_an_error_that_names_the_folder(self, name, data):
        with pytest.raises(FileNotFoundError, match="OSLS_DATA"):
            load_dataset(name).load()

    @pytest.mark.parametrize("name", sorted(set(DATASETS) - {"digits"}))
    def test_nothing_is_fetched_or_written_unless_asked(self, name, data):
        with pytest.raises(FileNotFoundError):
            load_dataset(name).load()
        assert not cache_folder().exists()

    def test_without_a_data_folder_the_error_says_how_to_name_one(self, data, monkeypatch):
        monkeypatch.delenv("OSLS_DATA")
        with pytest.raises(FileNotFoundError, match="set the environment variable OSLS_DATA"):
            load_dataset("letter").load()

    @pytest.mark.parametrize(("name", "hint"), [("digitz", "; did you mean 'digits'?"), ("?", "")])
    def test_an_unknown_name_is_an_error_that_lists_those_there_are(self, name, hint):
        with pytest.raises(ValueError, match="unknown data set") as error:
            load_dataset(name)
        assert str(error.value).startswith(f"unknown data set {name!r}{hint or '.'} Known: avila, ")
        assert str(error.value).endswith("zeisel.")

    def test_same_number_of_novel_classes_as_the_runner_drew(self):
        a, b = np.random.RandomState(5), np.random.RandomState(5)
        for _ in range(20):
            assert load_dataset("digits").draw_novel(a) == int(b.randint(1, 4))

    def test_one_tumour_of_each_kind_is_novel(self):
        rng = np.random.RandomState(0)
        drawn = [load_dataset("breakhis").draw_novel(rng) for _ in range(100)]
        assert {benign for benign, _ in drawn} == {0, 1, 2, 3}
        assert {malignant for _, malignant in drawn} == {4, 5, 6, 7}

    def test_the_oldest_are_novel(self):
        assert load_dataset("utkface").draw_novel(np.random.RandomState(0)) == [7]

    def test_a_loader_of_plain_pairs_still_works(self):
        dataset = Dataset("mine", lambda: (np.ones((4, 2)), np.arange(4)), novel=(1, 1))
        X, y = dataset.load()
        assert X.shape == (4, 2)
        assert dataset.draw_novel(np.random.RandomState(0)) == 1
        assert y.tolist() == [0, 1, 2, 3]

    def test_labelled_unpacks_as_a_pair(self):
        X, y = labelled = Labelled(np.zeros((2, 1)), np.array([0, 1]), ("a", "b"))
        assert X is labelled.X
        assert y is labelled.y

    def test_digits_make_a_problem(self):
        labelled = load_dataset("digits").load()
        assert labelled.class_names == tuple("0123456789")
        assert len(simulate_osls(*labelled, novel=2, random_state=0).classes) == 8


class TestCifar:
    @staticmethod
    def records(labels: list[list[int]]) -> bytes:
        """One record a list of labels; the image is red, then green, then blue planes."""
        planes = b"".join(bytes([value]) * 1024 for value in (10, 20, 30))
        return b"".join(bytes(record) + planes for record in labels)

    def files(self) -> dict[str, bytes]:
        folder = "cifar-10-batches-bin"
        names = "airplane automobile bird cat deer dog frog horse ship truck\n".replace(" ", "\n")
        batches = {f"{folder}/data_batch_{i}.bin": self.records([[i], [9]]) for i in range(1, 6)}
        return batches | {
            f"{folder}/test_batch.bin": self.records([[0]]),
            f"{folder}/batches.meta.txt": names.encode() + b"\n",
        }

    def write(self, root: Path) -> None:
        for name, content in self.files().items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(content)

    def test_binary_layout(self, data):
        self.write(data)
        labelled = load_dataset("cifar10").load()
        assert labelled.X.shape == (10, 32, 32, 3)
        assert labelled.X.dtype == np.uint8
        assert labelled.X[3, 5, 7].tolist() == [10, 20, 30]
        assert labelled.y.tolist() == [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]
        assert labelled.class_names[0] == "airplane"
        assert len(labelled.class_names) == 10

    def test_splits(self, data):
        self.write(data)
        assert load_dataset("cifar10").load(split="test").y.tolist() == [0]
        assert len(load_dataset("cifar10").load(split="all").y) == 11
        with pytest.raises(ValueError, match="split"):
            load_dataset("cifar10").load(split="validation")

    def test_fine_labels_of_cifar100(self, data):
        folder = data / "cifar-100-binary"
        folder.mkdir()
        (folder / "train.bin").write_bytes(self.records([[3, 77], [4, 99]]))
        (folder / "fine_label_names.txt").write_text("\n".join(f"class{i}" for i in range(100)))
        labelled = load_dataset("cifar100").load()
        assert labelled.y.tolist() == [77, 99]
        assert labelled.class_names[77] == "class77"
        assert labelled.X[1, 0, 0].tolist() == [10, 20, 30]

    def test_npz(self, data):
        images = np.full((3, 32, 32, 3), 7, np.uint8)
        np.savez(
            data / "cifar10.npz",
            X_train=images,
            y_train=[0, 1, 2],
            X_test=images[:1],
            y_test=[5],
            class_names=list("abcdefghij"),
        )
        labelled = load_dataset("cifar10").load()
        assert labelled.X.shape == (3, 32, 32, 3)
        assert labelled.X.dtype == np.uint8
        assert labelled.class_names == tuple("abcdefghij")
        assert load_dataset("cifar10").load(split="all").y.tolist() == [0, 1, 2, 5]

    @pytest.mark.parametrize(
        ("content", "message"), [(b"\0" * 100, "record size 3073"), (b"\x0b" + b"\0" * 3072, "label 11")]
    )
    def test_damage_is_named(self, data, content, message):
        self.write(data)
        (data / "cifar-10-batches-bin" / "data_batch_3.bin").write_bytes(content)
        with pytest.raises(ValueError, match=rf"data_batch_3\.bin.*{message}"):
            load_dataset("cifar10").load()

    def test_a_missing_part_is_named(self, data):
        self.write(data)
        (data / "cifar-10-batches-bin" / "data_batch_5.bin").unlink()
        with pytest.raises(FileNotFoundError, match=r"data_batch_5\.bin"):
            load_dataset("cifar10").load()

    def test_instructions(self, data):
        with pytest.raises(FileNotFoundError) as error:
            load_dataset("cifar100").load()
        for part in (
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
            "download=True",
            "as cifar-100-binary",
        ):
            assert part in str(error.value)

    def test_downloads_unpacks_and_reads(self, data, server):
        archive = tar_bytes(self.files())
        url = server({"cifar-10-binary.tar.gz": archive})
        remote = RemoteFile(f"{url}/cifar-10-binary.tar.gz", "md5:" + hashlib.md5(archive).hexdigest())
        layout = replace(CIFAR10, origin=replace(CIFAR10.origin, remote=remote))
        labelled = load_cifar(layout, download=True)
        assert len(labelled.y) == 10
        # The archive has served; what was unpacked is found without a network.
        assert not list(cache_folder().rglob("*.tar.gz"))
        assert len(load_cifar(CIFAR10).y) == 10

    def test_an_archive_in_the_data_folder_is_checked(self, data):
        (data / "cifar-100-binary.tar.gz").write_bytes(tar_bytes({"cifar-100-binary/train.bin": b""}))
        with pytest.raises(ValueError, match="md5"):
            load_cifar(CIFAR100)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serve bytes, ranges too unless told not to; send only so many bytes if told so."""

    def __init__(self, *args, files, log, ranges, cut, length, **kwargs):
        self.files, self.log, self.ranges, self.cut, self.length = files, log, ranges, cut, length
        super().__init__(*args, **kwargs)

    def do_GET(self):
        content = self.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        start = int(self.headers.get("Range", "bytes=0-")[6:-1]) if self.ranges else 0
        self.log.append(start)
        if start >= len(content) > 0:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if self.length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.cut])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    running = []

    def start(
        files: dict[str, bytes], *, ranges: bool = True, cut: int | None = None, length: bool = True
    ) -> str:
        start.log = []
        handler = functools.partial(
            Handler, files=files, log=start.log, ranges=ranges, cut=cut, length=length
        )
        httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((httpd, thread))
        return f"http://127.0.0.1:{httpd.server_address[1]}"

    yield start
    for httpd, thread in running:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


class TestDownload:
    CONTENT = os.urandom(700_000)

    def remote(self, url: str) -> RemoteFile:
        checksum = "sha256:" + hashlib.sha256(self.CONTENT).hexdigest()
        return RemoteFile(f"{url}/file.bin", checksum)

    def test_whole_file(self, server, tmp_path):
        remote = self.remote(server({"file.bin": self.CONTENT}))
        path = download(remote, tmp_path / "new" / "file.bin")
        assert path.read_bytes() == self.CONTENT
        assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
        download(remote, path)
        assert server.log == [0]

    @pytest.mark.parametrize("ranges", [True, False])
    def test_interrupted_and_resumed(self, server, tmp_path, ranges):
        path = tmp_path / "file.bin"
        with pytest.raises(ConnectionError, match="Run again"):
            download(self.remote(server({"file.bin": self.CONTENT}, cut=300_000)), path)
        assert [p.name for p in tmp_path.iterdir()] == ["file.bin.part"]
        have = (tmp_path / "file.bin.part").stat().st_size
        assert 200_000 < have <= 300_000
        download(self.remote(server({"file.bin": self.CONTENT}, ranges=ranges)), path)
        assert path.read_bytes() == self.CONTENT
        assert server.log == ([have] if ranges else [0, 0])
        assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]

    def test_complete_part_is_only_checked(self, server, tmp_path):
        (tmp_path / "file.bin.part").write_bytes(self.CONTENT)
        path = download(self.remote(server({"file.bin": self.CONTENT})), tmp_path / "file.bin")
        assert path.read_bytes() == self.CONTENT
        assert server.log == []

    @pytest.mark.parametrize("part", [CONTENT + b"more", b"other" * 1000], ids=["longer", "another"])
    def test_a_damaged_part_is_fetched_again(self, server, tmp_path, part):
        (tmp_path / "file.bin.part").write_bytes(part)
        path = download(self.remote(server({"file.bin": self.CONTENT})), tmp_path / "file.bin")
        assert path.read_bytes() == self.CONTENT
        assert server.log == [len(part), 0]

    def test_wrong_checksum_leaves_nothing(self, server, tmp_path):
        remote = self.remote(server({"file.bin": self.CONTENT[::-1]}))
        with pytest.raises(ValueError, match="sha256"):
            download(remote, tmp_path / "file.bin")
        assert list(tmp_path.iterdir()) == []

    def test_a_length_that_is_not_announced(self, server, tmp_path):
        remote = self.remote(server({"file.bin": self.CONTENT}, length=False))
        assert download(remote, tmp_path / "file.bin").read_bytes() == self.CONTENT

    def test_not_there(self, server, tmp_path):
        with pytest.raises(ConnectionError, match=r"404.*save it as .*file\.bin"):
            download(self.remote(server({})), tmp_path / "file.bin")

    def test_only_http(self, tmp_path):
        with pytest.raises(ValueError, match="http"):
            download(RemoteFile("file:///etc/passwd", "md5:0"), tmp_path / "file.bin")

    def test_two_at_once(self, server, tmp_path):
        remote = self.remote(server({"file.bin": self.CONTENT}))
        path = tmp_path / "file.bin"
        threads = [threading.Thread(target=download, args=(remote, path)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert path.read_bytes() == self.CONTENT
        assert server.log == [0]

    @pytest.mark.parametrize("terminal", [True, False])
    def test_progress_is_shown_on_a_terminal(self, server, tmp_path, monkeypatch, capsys, terminal):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
        download(self.remote(server({"file.bin": self.CONTENT})), tmp_path / "file.bin")
        assert ("B/s" in capsys.readouterr().err) == terminal


class TestArchive:
    def unpack(self, tmp_path: Path, content: bytes, **limits) -> Path:
        archive = tmp_path / "archive"
        archive.write_bytes(content)
        return unpack(archive, tmp_path / "out", **({"max_bytes": 10_000} | limits))

    @staticmethod
    def zip_bytes(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", compression) as file:
            for name, content in files.items():
                file.writestr(name, content)
        return buffer.getvalue()

    @pytest.mark.parametrize("kind", ["zip", "tar"])
    def test_plain_files(self, tmp_path, kind):
        files = {"a/b.txt": b"one", "c.txt": b"two"}
        out = self.unpack(tmp_path, self.zip_bytes(files) if kind == "zip" else tar_bytes(files))
        assert (out / "a" / "b.txt").read_bytes() == b"one"
        assert (out / "c.txt").read_bytes() == b"two"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["archive", "out"]

    @pytest.mark.parametrize("kind", ["zip", "tar"])
    def test_an_empty_folder_inside_is_kept(self, tmp_path, kind):
        content = self.zip_bytes({"a/": b""})
        if kind == "tar":
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as tar:
                info = tarfile.TarInfo("a")
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            content = buffer.getvalue()
        out = self.unpack(tmp_path, content)
        assert [(path.name, path.is_dir()) for path in out.rglob("*")] == [("a", True)]

    def test_what_was_unpacked_before_is_left_alone(self, tmp_path):
        (tmp_path / "out").mkdir()
        assert self.unpack(tmp_path, b"no archive") == tmp_path / "out"
        assert list((tmp_path / "out").iterdir()) == []

    def test_a_place_that_cannot_be_taken(self, tmp_path):
        (tmp_path / "out").symlink_to(tmp_path / "nowhere")
        with pytest.raises(NotADirectoryError):
            self.unpack(tmp_path, tar_bytes({"a": b"1"}))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "out"]

    @pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "..\\evil", "C:evil"])
    @pytest.mark.parametrize("kind", ["zip", "tar"])
    def test_names_that_would_leave_the_folder(self, tmp_path, kind, name):
        """A tar file with ".." is refused; otherwise the file lies in the folder, whatever it is called."""
        files = {"good": b"1", name: b"2"}
        content = self.zip_bytes(files) if kind == "zip" else tar_bytes(files)
        if kind == "tar" and ".." in Path(name).parts:
            with pytest.raises(ValueError, match="leaves its folder"):
                self.unpack(tmp_path, content)
        else:
            self.unpack(tmp_path, content)
        outside = [p.name for p in tmp_path.rglob("*") if tmp_path / "out" not in (p, *p.parents)]
        assert outside == ["archive"]
        assert not Path("/evil").exists()

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
    def test_links_and_devices_in_tar(self, tmp_path, kind):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            info = tarfile.TarInfo("link")
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        with pytest.raises(ValueError, match="link or device"):
            self.unpack(tmp_path, buffer.getvalue())
        assert not (tmp_path / "out").exists()

    def test_links_in_zip_become_plain_files(self, tmp_path):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            info = zipfile.ZipInfo("link")
            info.external_attr = 0o120777 << 16
            file.writestr(info, "/etc/passwd")
        link = self.unpack(tmp_path, buffer.getvalue()) / "link"
        assert not link.is_symlink()
        assert link.read_text() == "/etc/passwd"

    @pytest.mark.parametrize("kind", ["zip", "tar"])
    def test_bombs(self, tmp_path, kind):
        files = {"zeros": b"\0" * 5_000_000}
        content = self.zip_bytes(files) if kind == "zip" else tar_bytes(files)
        assert len(content) < 10_000
        with pytest.raises(ValueError, match="more than 10000 bytes"):
            self.unpack(tmp_path, content)
        assert [p.name for p in tmp_path.rglob("*")] == ["archive"]

    def test_too_many_files(self, tmp_path):
        with pytest.raises(ValueError, match="more than 3 files"):
            self.unpack(tmp_path, tar_bytes({f"{i}": b"" for i in range(4)}), max_files=3)

    @pytest.mark.parametrize("content", [b"", b"no archive", tar_bytes({"a": os.urandom(5000)})[:2000]])
    def test_damage(self, tmp_path, content):
        with pytest.raises(ValueError, match="damaged"):
            self.unpack(tmp_path, content)
        assert not (tmp_path / "out").exists()

    def test_an_archive_without_the_data_set(self, data):
        (data / "x.tar.gz").write_bytes(tar_bytes({"other": b""}))
        origin = Origin("X", paths=("x",), advice="Get X.", archives=("x.tar.gz",))
        with pytest.raises(FileNotFoundError, match="does not hold x"):
            origin.find()

    def test_a_file_that_is_no_archive_is_fetched_as_it_is(self, data, server):
        url = server({"x.bin": b"rows"})
        remote = RemoteFile(f"{url}/x.bin", "md5:" + hashlib.md5(b"rows").hexdigest())
        found = Origin("X", paths=("x.bin",), advice="Get X.", remote=remote).find(download=True)
        assert found == cache_folder() / "data" / "x.bin"
        assert found.read_bytes() == b"rows"


class TestMnist:
    @staticmethod
    def idx(array: np.ndarray) -> bytes:
        return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()

    def files(self) -> dict[str, bytes]:
        images = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28)
        labels = np.array([4, 0, 9], np.uint8)
        return {
            "train-images-idx3-ubyte": self.idx(images),
            "train-labels-idx1-ubyte": self.idx(labels),
            "t10k-images-idx3-ubyte": self.idx(images[:1]),
            "t10k-labels-idx1-ubyte": self.idx(labels[:1]),
        }

    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize("folder", ["", "mnist", "MNIST/raw"])
    def test_idx_files(self, data, packed, folder):
        (data / folder).mkdir(parents=True, exist_ok=True)
        for name, content in self.files().items():
            path = data / folder / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(content) if packed else content)
        X, y = load_dataset("mnist").load()
        assert X.shape == (4, 784)
        assert X.dtype == np.float32
        assert X[0, 255] == 1
        assert y.tolist() == [4, 0, 9, 4]

    def test_npz(self, data):
        images = np.full((3, 28, 28), 51, np.uint8)
        np.savez(data / "mnist.npz", X_train=images, y_train=[4, 0, 9], X_test=images[:1], y_test=[4])
        X, y = labelled = load_dataset("mnist").load()
        np.testing.assert_allclose(X, np.full((4, 784), 0.2), rtol=1e-6)
        assert y.tolist() == [4, 0, 9, 4]
        assert labelled.class_names == ("0", "4", "9")

    def test_images_and_labels_must_agree(self, data):
        for name, content in self.files().items():
            (data / name).write_bytes(content)
        (data / "t10k-labels-idx1-ubyte").write_bytes(self.idx(np.zeros(2, np.uint8)))
        with pytest.raises(ValueError, match="4 images but 5 labels"):
            load_dataset("mnist").load()

    def test_damage_is_named(self, tmp_path):
        path = tmp_path / "images"
        for content in (b"\0\0\x08\x01\0\0\0\x05abc", b"\0\0\x08\x01\0\0\0\x02abc", b"hello world", b""):
            path.write_bytes(content)
            with pytest.raises(ValueError, match="images"):
                read_idx(path)

    def test_a_download_is_checked(self, data, server):
        url = server({"train-images-idx3-ubyte.gz": b"not the official file"})
        with pytest.raises(ValueError, match="f68b3c2dcbeaaa9fbdd348bbdeb94873"):
            load_mnist(download=True, url=url)


class TestTables:
    def test_npz(self, data):
        np.savez(data / "letter.npz", X=[[1, 2], [3, 4]], y=[0, 1], class_names=["a", "b"])
        X, y = labelled = load_dataset("letter").load()
        assert X.dtype == np.float32
        assert X.tolist() == [[1, 2], [3, 4]]
        assert y.tolist() == [0, 1]
        assert labelled.class_names == ("a", "b")


class TestPrepared:
    @staticmethod
    def build(path: Path) -> tuple[np.ndarray, list[str]]:
        np.save(path, np.eye(2))
        return np.array([0, 1]), ["a", "b"]

    def test_of_two_at_once_the_first_one_counts(self, data):
        def slow(path: Path) -> tuple[np.ndarray, list[str]]:
            prepared("x", 1, self.build)
            np.save(path, np.zeros((2, 2)))
            return np.array([1, 1]), ["late"]

        X, y = labelled = prepared("x", 1, slow)
        assert X.tolist() == np.eye(2).tolist()
        assert y.tolist() == [0, 1]
        assert labelled.class_names == ("a", "b")
        assert len(list((cache_folder() / "prepared").iterdir())) == 1

    def test_a_place_that_cannot_be_taken(self, data):
        prepared("x", 1, self.build)
        (folder,) = (cache_folder() / "prepared").iterdir()
        shutil.rmtree(folder)
        folder.symlink_to(data / "nowhere")
        with pytest.raises(NotADirectoryError):
            prepared("x", 1, self.build)
        assert list(folder.parent.iterdir()) == [folder]


class TestImages:
    def test_any_image_becomes_a_square_of_bytes(self, tmp_path):
        for mode, name in (("RGB", "a.png"), ("L", "b.png"), ("P", "c.png"), ("RGBA", "d.png")):
            Image.new(mode, (30, 20)).save(tmp_path / name)
        Image.new("RGB", (300, 200), (200, 0, 0)).save(tmp_path / "e.jpg")
        for path in image_files(tmp_path):
            pixels = read_image(path, 16)
            assert pixels.shape == (16, 16, 3)
            assert pixels.dtype == np.uint8
        assert abs(int(pixels[8, 8, 0]) - 200) < 5

    def test_the_whole_picture_is_kept(self, tmp_path):
        wide = np.zeros((10, 40, 3), np.uint8)
        wide[:, 20:] = 255
        Image.fromarray(wide).save(tmp_path / "wide.png")
        pixels = read_image(tmp_path / "wide.png", 8)
        assert pixels[4, 0, 0] < 10
        assert pixels[4, 7, 0] > 245

    def test_no_image(self, tmp_path):
        (tmp_path / "x.jpg").write_text("hello")
        with pytest.raises(ValueError, match=r"x\.jpg is not an image"):
            read_image(tmp_path / "x.jpg", 8)
        with pytest.raises(FileNotFoundError):
            read_image(tmp_path / "y.jpg", 8)

    def test_a_picture_that_claims_to_be_huge(self, tmp_path):
        Image.new("1", (10_100, 10_000)).save(tmp_path / "huge.png")
        with pytest.warns(Image.DecompressionBombWarning), pytest.raises(ValueError, match="pixels"):
            read_image(tmp_path / "huge.png", 8)

    def test_hidden_files_are_passed_over(self, tmp_path):
        for name in ("a.JPEG", "._a.JPEG", "notes.txt"):
            (tmp_path / name).write_text("")
        assert [path.name for path in image_files(tmp_path)] == ["a.JPEG"]


class TestBreakHis:
    @pytest.fixture
    def tree(self, data) -> Path:
        for number, (name, kind) in enumerate(BREAKHIS_CLASSES.items()):
            patient = data / f"BreaKHis_v1/histology_slides/breast/{kind}/SOB/{name}/SOB_X_14-{number}"
            for magnification in ("40X", "400X"):
                save_image(patient / magnification / f"SOB_X-{magnification}-001.png", (number * 10, 0, 0))
        return data

    def test_tree(self, tree):
        X, y = labelled = load_dataset("breakhis").load(size=8)
        assert X.shape == (16, 8, 8, 3)
        assert labelled.class_names == tuple(BREAKHIS_CLASSES)
        np.testing.assert_array_equal(X[:, 0, 0, 0], 10 * y)

    def test_decoded_once(self, tree, monkeypatch):
        first = load_dataset("breakhis").load(size=8)
        monkeypatch.setattr("osls.datasets.image_sets.read_image", None)
        second = load_dataset("breakhis").load(size=8)
        assert isinstance(second.X, np.memmap)
        np.testing.assert_array_equal(first.X, second.X)
        # The folder itself was not touched.
        assert [p.name for p in tree.iterdir()] == ["BreaKHis_v1"]

    def test_a_changed_image_is_decoded_again(self, tree):
        load_dataset("breakhis").load(size=8)
        path = image_files(tree)[0]
        save_image(path, (250, 0, 0))
        os.utime(path, (1, 1))
        assert load_dataset("breakhis").load(size=8).X.max() == 250

    def test_failure_leaves_nothing_in_the_cache(self, tree):
        image_files(tree)[-1].write_text("damage")
        with pytest.raises(ValueError, match="not an image"):
            load_dataset("breakhis").load()
        assert list((cache_folder() / "prepared").iterdir()) == []

    def test_a_missing_class(self, tree):
        folder = tree / "BreaKHis_v1/histology_slides/breast/benign/SOB/adenosis"
        folder.rename(folder.with_name("other"))
        with pytest.raises(FileNotFoundError, match="adenosis is missing"):
            load_dataset("breakhis").load()

    def test_a_class_without_images(self, tree):
        folder = tree / "BreaKHis_v1/histology_slides/breast/benign/SOB/adenosis"
        for path in image_files(folder):
            path.unlink()
        with pytest.raises(FileNotFoundError, match="adenosis holds no image files"):
            load_dataset("breakhis").load()

    def test_npz(self, data):
        X = np.zeros((8, 64, 96, 3), np.uint8)
        np.savez(data / "breakhis400x.npz", X=X, y=np.arange(8), class_names=list(BREAKHIS_CLASSES))
        labelled = load_dataset("breakhis400x").load()
        assert labelled.X.shape == X.shape
        assert labelled.X.dtype == np.uint8
        np.savez(data / "breakhis400x.npz", X=X, y=np.arange(8), class_names=list("abcdefgh"))
        with pytest.raises(ValueError, match="in this order"):
            load_dataset("breakhis400x").load()


class TestDermNet:
    def fill(self, root: Path, classes: int = 23) -> None:
        for number in range(classes):
            save_image(root / "train" / f"Disease {number:02d} Photos" / "a.jpg", (number, 0, 0))
            save_image(root / "test" / f"Disease {number:02d} Photos" / "b.jpg", (0, 0, 0))

    def test_training_folder(self, data):
        self.fill(data / "dermnet")
        labelled = load_dataset("dermnet").load(size=8)
        assert labelled.y.tolist() == list(range(23))
        assert labelled.class_names[3] == "Disease 03 Photos"

    def test_zip(self, data, tmp_path):
        self.fill(tmp_path / "new")
        with zipfile.ZipFile(data / "dermnet.zip", "w") as file:
            for path in image_files(tmp_path / "new"):
                file.write(path, path.relative_to(tmp_path / "new"))
        assert len(load_dataset("dermnet").load(size=8).y) == 23
        assert [p.name for p in data.iterdir()] == ["dermnet.zip"]

    def test_wrong_number_of_classes(self, data):
        self.fill(data / "dermnet", classes=22)
        with pytest.raises(ValueError, match="22 class folders instead of 23"):
            load_dataset("dermnet").load()


class TestUtkFace:
    def test_age_groups(self, data):
        for age in (1, 10, 11, 20, 35, 70, 71, 116):
            save_image(data / "UTKFace" / f"{age}_0_2_20161219140623097.jpg.chip.jpg", (age, age, age))
        # A few official names lack the race.
        save_image(data / "UTKFace" / "61_1_20170109150557335.jpg.chip.jpg", (61, 61, 61))
        X, y = labelled = load_dataset("utkface").load(size=8)
        assert len(labelled.class_names) == 8
        ages = X[:, 4, 4, 0].astype(int)
        assert sorted(ages.tolist()) == [1, 10, 11, 20, 35, 61, 70, 71, 116]
        groups = dict(zip(ages.tolist(), y.tolist(), strict=True))
        assert groups == {1: 0, 10: 0, 11: 1, 20: 1, 35: 3, 61: 6, 70: 6, 71: 7, 116: 7}

    def test_every_age(self):
        bounds = [10, 20, 30, 40, 50, 60, 70]
        ages = np.arange(117)
        np.testing.assert_array_equal(age_group(ages), np.searchsorted(bounds, ages))

    def test_a_folder_without_images(self, data):
        (data / "UTKFace").mkdir()
        with pytest.raises(FileNotFoundError, match="utkface: its folder holds no image files"):
            load_dataset("utkface").load()

    def test_other_names(self, data):
        save_image(data / "UTKFace" / "holiday.jpg", (0, 0, 0))
        with pytest.raises(ValueError, match=r"holiday\.jpg does not start with an age"):
            load_dataset("utkface").load()


class TestEntity30:
    """A hierarchy of the official form: three nodes at level 4, one of them too small, one with a bypass."""

    @staticmethod
    def small(folder: Path, branches: dict[str, list[str]], *more: tuple[str, str]) -> Hierarchy:
        """One node at level 4, ``x``, with branches of classes below its only child, ``y``."""
        path = ["n00001740", "l1", "l2", "l3", "x", "y"]
        edges = [*itertools.pairwise(path), *(("y", branch) for branch in branches), *more]
        edges += [(branch, leaf) for branch, leaves in branches.items() for leaf in leaves]
        (folder / "class_hierarchy.txt").write_text("".join(f"{p} {c}\n" for p, c in edges))
        (folder / "node_names.txt").write_text("")
        info = [[0, leaf, leaf] for leaves in branches.values() for leaf in leaves]
        (folder / "dataset_class_info.json").write_text(json.dumps(info))
        return Hierarchy(folder)

    def test_a_node_with_one_child_is_cut_where_it_branches(self, tmp_path):
        hierarchy = self.small(tmp_path, {"b": list("stuv"), "c": list("klmn")})
        assert hierarchy.entity30() == {"x": ["s", "t", "k", "l"]}

    def test_branches_that_cannot_be_halved_are_named(self, tmp_path):
        hierarchy = self.small(tmp_path, {"A": list("abc"), "B": list("def"), "C": list("gh")})
        with pytest.raises(ValueError, match="gives x no two halves of 4 classes; is it the official one"):
            hierarchy.entity30()

    def test_a_circle_is_named(self, tmp_path):
        hierarchy = self.small(tmp_path, {"b": list("stuv"), "c": list("klmn")}, ("b", "l1"))
        with pytest.raises(ValueError, match="the hierarchy has a cycle; is it the official one"):
            hierarchy.entity30()

    def test_the_hierarchy_is_fetched_if_allowed(self, data, server, tmp_path, monkeypatch):
        self.small(tmp_path, {"b": ["c"]})
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        # The official files are not here: sums of our own stand in for theirs.
        sums = {name: f"md5:{hashlib.md5(content).hexdigest()}" for name, content in files.items()}
        monkeypatch.setattr(breeds, "_FILES", sums)
        folder = breeds._hierarchy_folder(True, server(files))
        assert folder == cache_folder() / "data" / "breeds"
        assert Hierarchy(folder).below("x") == {"c"}

    def write(self, folder: Path) -> dict[str, list[str]]:
        folder.mkdir(parents=True, exist_ok=True)
        root = "n00001740"
        edges = [(root, "l1"), ("l1", "l2"), ("l2", "l3"), ("l3", "birds"), ("l3", "dogs"), ("l3", "few")]
        # Also one step from the root, yet at level 4: the longest path counts.
        edges += [(root, "dogs"), ("birds", "perching"), ("birds", "wading")]
        leaves = {
            "perching": [f"p{i}" for i in range(5)],
            "wading": [f"w{i}" for i in range(5)],
            "few": ["f0", "f1"],
            "dogs": [f"d{i}" for i in range(8)],
        }
        edges += [(parent, child) for parent, children in leaves.items() for child in children]
        edges += [("l2", "empty")]
        every = [leaf for children in leaves.values() for leaf in children]
        (folder / "class_hierarchy.txt").write_text("".join(f"{p} {c}\n" for p, c in edges))
        (folder / "node_names.txt").write_text("birds\tbird, fowl\ndogs\tdog\n")
        info = [[i, leaf, f"name of {leaf}"] for i, leaf in enumerate(every)]
        (folder / "dataset_class_info.json").write_text(json.dumps(info))
        # By hand: birds are dealt two and two from each branch; dogs are eight branches of one.
        return {"birds": ["p0", "p1", "w0", "w1"], "dogs": ["d0", "d1", "d2", "d3"]}

    def test_superclasses(self, tmp_path):
        wanted = self.write(tmp_path)
        hierarchy = Hierarchy(tmp_path)
        assert hierarchy.level(4) == ["birds", "dogs", "few"]
        assert hierarchy.below("few") == {"f0", "f1"}
        assert hierarchy.entity30() == wanted

    def test_images(self, data):
        wanted = self.write(data / "breeds")
        for number, leaves in enumerate(wanted.values()):
            for leaf in leaves:
                save_image(data / "imagenet" / "train" / leaf / f"{leaf}_1.JPEG", (100 * number,) * 3)
        X, y = labelled = load_dataset("entity30").load(size=8)
        assert labelled.class_names == ("bird, fowl", "dog")
        assert y.tolist() == [0] * 4 + [1] * 4
        assert (X[:4] < 5).all()
        assert (X[4:] > 95).all()

    def test_what_is_missing_is_named(self, data):
        with pytest.raises(FileNotFoundError, match=r"image-net\.org"):
            load_dataset("entity30").load()
        (data / "imagenet" / "train").mkdir(parents=True)
        with pytest.raises(FileNotFoundError, match="BREEDS"):
            load_dataset("entity30").load()
        self.write(data / "breeds")
        with pytest.raises(FileNotFoundError, match="no folder p0"):
            load_dataset("entity30").load()
        (data / "breeds" / "node_names.txt").unlink()
        with pytest.raises(FileNotFoundError, match=r"node_names\.txt"):
            load_dataset("entity30").load()


class TestCells:
    def test_counts_become_logarithms(self, data):
        counts = sparse.csr_matrix(np.array([[1, 0, 3], [0, 5, 0]], dtype=np.int32))
        np.savez(
            data / "worm_neuron_cell.npz",
            data=counts.data,
            indices=counts.indices,
            indptr=counts.indptr,
            shape=counts.shape,
            y=[0, 1],
        )
        labelled = load_dataset("worm").load()
        X = labelled.X
        assert sparse.issparse(X)
        assert X.dtype == np.float32
        np.testing.assert_allclose(np.expm1(X.toarray()), [[2500, 0, 7500], [0, 10_000, 0]], rtol=1e-5)
        assert labelled.class_names == ("0", "1")

    def test_logarithms_stay(self, data):
        values = sparse.csr_matrix(np.array([[0.7, 0], [0, 1.5]], dtype=np.float32))
        parts = {"data": values.data, "indices": values.indices, "indptr": values.indptr}
        np.savez(
            data / "zeisel_mouse_brain.npz", **parts, shape=values.shape, y=[1, 0], class_names=["a", "b"]
        )
        labelled = load_dataset("zeisel").load()
        np.testing.assert_array_equal(labelled.X.toarray(), values.toarray())
        assert labelled.class_names == ("a", "b")

    def test_rows_and_labels_must_agree(self, data):
        values = sparse.eye(3, format="csr")
        parts = {"data": values.data, "indices": values.indices, "indptr": values.indptr}
        np.savez(data / "citeseq_cbmc.npz", **parts, shape=(3, 3), y=[0, 1])
        with pytest.raises(ValueError, match="3 cells but 2 labels"):
            load_dataset("citeseq").load()

    def test_a_cell_without_counts(self):
        assert log_normalise(sparse.csr_matrix((2, 3), dtype=np.int32)).nnz == 0


def write_h5ad(path: Path, counts: np.ndarray, columns: dict[str, np.ndarray], *, old: bool = False) -> None:
    """Write an h5ad file as anndata does, or as its versions of 2019 did."""
    X = sparse.csr_matrix(counts)
    text = h5py.string_dtype()
    cells = [f"cell{i}" for i in range(X.shape[0])]
    genes = [f"gene{i}" for i in range(X.shape[1])]
    with h5py.File(path, "w") as file:
        matrix = file.create_group("X")
        for part in ("data", "indices", "indptr"):
            matrix[part] = getattr(X, part)
        if old:
            matrix.attrs.update({"h5sparse_format": "csr", "h5sparse_shape": X.shape})
            kinds = [("index", text), *((name, "i1") for name in columns)]
            table = np.empty(len(cells), dtype=kinds)
            table["index"] = cells
            for name, values in columns.items():
                categories, table[name] = np.unique(values, return_inverse=True)
                file[f"uns/{name}_categories"] = categories.astype(object)
            file["obs"] = table
            file["var"] = np.array([(gene,) for gene in genes], dtype=[("index", text)])
            return
        matrix.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": X.shape})
        for name, index in (("obs", cells), ("var", genes)):
            frame = file.create_group(name)
            order = np.array(list(columns) if name == "obs" else [], dtype=text)
            frame.attrs.update(
                {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"}
            )
            frame.attrs["column-order"] = order
            frame["_index"] = np.array(index, dtype=text)
            frame["_index"].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
        for name, values in columns.items():
            categories, codes = np.unique(values, return_inverse=True)
            group = file["obs"].create_group(name)
            group.attrs.update(
                {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
            )
            group["codes"] = codes.astype("i1")
            group["codes"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
            group["categories"] = categories.astype(object)
            group["categories"].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})


class TestTabulaMuris:
    def write(
        self, path: Path, *, old: bool = False, n: int = 120, genes: int = 700, tissue: str = "Liver"
    ) -> np.ndarray:
        """Counts of two cell types in two training tissues, and what must be left out; returns the types."""
        rng = np.random.default_rng(0)
        types = np.array(["B cell", "T cell"])[rng.integers(0, 2, n)]
        marker = (np.arange(genes) % 7 == 0) & (types == "T cell")[:, None]
        counts = rng.poisson(rng.gamma(2.0, 8.0, size=genes) * np.where(marker, 6.0, 1.0)).astype(np.float32)
        tissues = np.array([tissue, "Heart" if tissue == "Liver" else tissue])[rng.integers(0, 2, n)]
        types[:4], tissues[4:8] = ["nan", "NA", "rare", "rare"], "Lung"
        counts[8] = 0
        counts[8, 0] = 9000  # enough counts, too few genes
        counts[9] = 1  # too few counts
        columns = {"cell_ontology_class_reannotated": types, "tissue": tissues}
        write_h5ad(path, counts, columns, old=old)
        return types

    @pytest.mark.parametrize("old", [False, True])
    def test_training_tissues(self, data, old):
        types = self.write(data / "tabula-muris-comet.h5ad", old=old)
        X, y = labelled = load_dataset("tabula-muris").load()
        assert labelled.class_names == ("B cell", "T cell")
        np.testing.assert_array_equal(np.array(labelled.class_names)[y], types[10:])
        assert X.dtype == np.float32
        assert 10 < X.shape[1] < 400
        # Standardised over all cells, of which all but a few are here.
        assert abs(X.mean()) < 0.05
        assert X.std() == pytest.approx(1, abs=0.05)

    def test_zip(self, data, tmp_path):
        self.write(tmp_path / "tabula-muris-comet.h5ad")
        with zipfile.ZipFile(data / "tabula-muris-comet.zip", "w") as file:
            file.write(tmp_path / "tabula-muris-comet.h5ad", "tabula-muris-comet.h5ad")
        assert len(load_dataset("tabula-muris").load().class_names) == 2

    def test_another_h5ad(self, data):
        write_h5ad(data / "tabula-muris-comet.h5ad", np.ones((2, 3)), {"kind": np.array(["a", "b"])})
        with pytest.raises(ValueError, match="no column 'cell_ontology_class_reannotated'"):
            load_dataset("tabula-muris").load()

    def test_no_cell_type_of_the_training_tissues(self, data):
        self.write(data / "tabula-muris-comet.h5ad", tissue="Lung")
        with pytest.raises(ValueError, match=r"no cell type has \d+ cells in the tissues"):
            load_dataset("tabula-muris").load()

    def test_a_gene_alone_at_its_level_is_variable_and_one_that_never_varies_is_not(self):
        # Means of 1, 2 and 5 in bins of their own; the last one is constant.
        X = np.array([[0.0, 0.0, 5.0], [2.0, 4.0, 5.0]])
        chosen = variable_genes(sparse.csr_matrix(X), bins=10, max_mean=9.0)
        assert chosen.tolist() == [True, True, False]

    def test_variable_genes_by_hand(self):
        # Thirty genes of mean about 5 that hardly vary, and one that does.
        rng = np.random.default_rng(0)
        X = 5 + 0.1 * rng.normal(size=(200, 31))
        X[:, 7] = np.where(np.arange(200) % 2, 9.0, 1.0)
        chosen = variable_genes(sparse.csr_matrix(X), bins=1)
        assert chosen[7]
        assert variable_genes(sparse.csr_matrix(X), bins=1, min_mean=3.0).sum() == 0
        assert chosen.sum() < 12


class TestNewsgroups:
    """scikit-learn's cache file, of a few posts."""

    @pytest.fixture
    def posts(self, data) -> list[str]:
        topics = ["the rocket reached orbit", "the goalie stopped the puck"]
        posts = [f"From: me\nSubject: {topics[i % 2]}\n\n{topics[i % 2]} on day {i}" for i in range(8)]

        def bunch(rows: list[int]) -> Bunch:
            return Bunch(
                data=[posts[i] for i in rows],
                target=np.array([i % 2 for i in rows]),
                target_names=["sci.space", "rec.sport.hockey"],
                filenames=np.array([str(i) for i in rows]),
            )

        cache = {"train": bunch([0, 1, 2, 3, 4, 5]), "test": bunch([6, 7])}
        (data / "20news-bydate_py3.pkz").write_bytes(codecs.encode(pickle.dumps(cache), "zlib_codec"))
        return posts

    def test_words(self, posts):
        labelled = load_dataset("newsgroups").load()
        assert labelled.class_names == ("sci.space", "rec.sport.hockey")
        assert sparse.issparse(labelled.X)
        assert labelled.X.shape[0] == len(labelled.y) == 8
        assert labelled.X.dtype == np.float32

    def test_plain_texts(self, posts):
        texts, y = texts_of("newsgroups")
        assert sorted(texts) == sorted(posts)
        assert y.tolist().count(0) == 4
        bare, _ = texts_of("newsgroups-bare")
        assert not any("Subject:" in text for text in bare)

    def test_features(self, posts):
        bare = load_dataset("newsgroups-bare-minilm").load()
        assert bare.X.shape == (8, 384)
        assert bare.X.dtype == np.float32
        space, hockey = bare.X[bare.y == 0], bare.X[bare.y == 1]
        assert (space @ space.T).min() > (space @ hockey.T).max() + 0.3
        # The headers are part of the text unless they are removed.
        whole = load_dataset("newsgroups-minilm").load()
        assert np.abs(whole.X - bare.X).max() > 0.01
        assert len(list(cache_folder().rglob("*.npy"))) == 2

    def test_words_and_features(self, posts):
        words, features = (load_dataset(f"newsgroups-bare{kind}").load() for kind in ("", "-minilm"))
        both = load_dataset("newsgroups-bare-both").load()
        np.testing.assert_array_equal(both.X.toarray(), np.hstack([words.X.toarray(), features.X]))
        np.testing.assert_array_equal(both.y, words.y)
        assert both.class_names == words.class_names


class TestEncodedSets:
    def test_images_become_features_once(self, data):
        rng = np.random.default_rng(0)
        X = rng.integers(0, 256, (8, 64, 96, 3), dtype=np.uint8)
        np.savez(data / "breakhis400x.npz", X=X, y=np.arange(8), class_names=list(BREAKHIS_CLASSES))
        first = load_dataset("breakhis400x-effnet").load()
        assert first.X.shape == (8, 1280)
        assert first.X.dtype == np.float32
        stored = {path: path.stat().st_mtime_ns for path in cache_folder().rglob("*.npy")}
        assert len(stored) == 1
        np.testing.assert_array_equal(load_dataset("breakhis400x-effnet").load().X, first.X)
        assert {path: path.stat().st_mtime_ns for path in cache_folder().rglob("*.npy")} == stored
        options = {"stages": 3, "mirror": True}
        assert load_dataset("breakhis400x-effnet").load(**options).X.shape == (8, 192 + 320 + 1280)
