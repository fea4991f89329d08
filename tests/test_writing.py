"""Nothing is lost on disk: what is replaced, who may write, which mode a file has."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from conftest import wait_until
from osls._core.writing import draft_of, only_writer
from osls.app.bench.store import Store
from osls.app.cli import app
from osls.app.files.reader import InputError
from osls.app.files.staging import check_destination, staged_file, staged_folder

POSIX = pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    """Set the umask for a test, and put it back."""
    before = os.umask(0o022)

    yield os.umask
    os.umask(before)


def run_in(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "mix.json").write_text(json.dumps({"format": "urn:osls:mix:1"}))
    (folder / "report.html").write_text("old")
    return folder


class TestModes:
    @POSIX
    @pytest.mark.parametrize(("mask", "expected"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
    def test_new_files_follow_the_umask(self, tmp_path, umask, mask, expected):
        umask(mask)
        with draft_of(tmp_path / "a.txt") as draft:
            assert mode(draft) == expected
            draft.write_text("x")
        assert mode(tmp_path / "a.txt") == expected

    @POSIX
    @pytest.mark.parametrize("old", [0o600, 0o640, 0o444])
    def test_a_replaced_file_keeps_its_mode(self, tmp_path, old):
        path = tmp_path / "a.txt"
        path.write_text("old")
        path.chmod(old)
        with draft_of(path) as draft:
            draft.write_text("new")
        assert (path.read_text(), mode(path)) == ("new", old)

    @POSIX
    @pytest.mark.skipif(os.name != "nt" and os.geteuid() != 0, reason="only root may give files away")
    def test_and_its_owner(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text("old")
        os.chown(path, 12345, 12346)
        with draft_of(path) as draft:
            draft.write_text("new")
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)

    @POSIX
    @pytest.mark.parametrize(("mask", "expected"), [(0o077, 0o700), (0o022, 0o755)])
    def test_new_folders_follow_the_umask(self, tmp_path, umask, mask, expected):
        umask(mask)
        with staged_folder(tmp_path / "run") as folder:
            (folder / "mix.json").write_text("{}")
        assert mode(tmp_path / "run") == expected


class TestLinks:
    @POSIX
    def test_a_file_behind_a_link_is_replaced_and_the_link_stays(self, tmp_path):
        (tmp_path / "real").mkdir()
        target, link = tmp_path / "real/a.txt", tmp_path / "a.txt"
        target.write_text("old")
        link.symlink_to(target)
        with draft_of(link) as draft:
            draft.write_text("new")
        assert link.is_symlink()
        assert target.read_text() == "new"

    @POSIX
    def test_a_folder_behind_a_link_too(self, tmp_path):
        real, link = run_in(tmp_path / "real"), tmp_path / "run"
        link.symlink_to(real)
        with staged_folder(link, overwrite=True) as folder:
            (folder / "mix.json").write_text(json.dumps({"format": "urn:osls:mix:1"}))
        assert link.is_symlink()
        assert sorted(path.name for path in real.iterdir()) == ["mix.json"]


class TestOverwriting:
    def test_a_file_that_is_only_called_mix_json_is_no_mark(self, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "run/mix.json").write_text('{"drinks": ["gin"]}')
        with pytest.raises(InputError, match="holds files that osls did not write"):
            check_destination(tmp_path / "run", overwrite=True)

    @pytest.mark.parametrize("name", ["notes.txt", "model.bak", ".hidden", "data"])
    def test_what_somebody_else_put_there_is_not_deleted(self, tmp_path, name):
        run = run_in(tmp_path / "run")
        (run / name).write_text("mine")
        with pytest.raises(InputError, match=f"holds '{name}', which osls did not write"):
            check_destination(run, overwrite=True)
        assert (run / name).read_text() == "mine"

    def test_a_run_of_ours_is_replaced(self, tmp_path):
        run = run_in(tmp_path / "run")
        with staged_folder(run, overwrite=True) as folder:
            (folder / "mix.json").write_text("new")
        assert sorted(path.name for path in run.iterdir()) == ["mix.json"]
        assert [path.name for path in tmp_path.iterdir()] == ["run"]

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_files_that_appear_meanwhile_stay_and_so_does_the_run(self, tmp_path, overwrite):
        def write():
            with staged_folder(tmp_path / "run", overwrite=overwrite) as folder:
                (folder / "mix.json").write_text("new")
                (tmp_path / "run").mkdir()
                (tmp_path / "run/thesis.tex").write_text("years of work")

        with pytest.raises(InputError, match=r"appeared during the run, which is kept in .*run-2"):
            write()
        assert (tmp_path / "run/thesis.tex").read_text() == "years of work"
        assert (tmp_path / "run-2/mix.json").read_text() == "new"

    def test_a_file_that_appears_meanwhile_stays(self, tmp_path):
        out = tmp_path / "p.csv"

        def write():
            with staged_file(out, overwrite=False) as draft:
                draft.write_text("new")
                out.write_text("theirs")

        with pytest.raises(InputError, match="appeared meanwhile"):
            write()
        assert out.read_text() == "theirs"
        assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


HOLD = """
import sys, time
from pathlib import Path
from osls._core.writing import only_writer
with only_writer(Path(sys.argv[1])):
    Path(sys.argv[2]).touch()
    sys.stdin.read()
"""


class TestOneWriter:
    @pytest.fixture
    def holder(self, tmp_path):
        """Another process that writes ``tmp_path / "run"`` until it is told to end."""
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path / "run"), str(tmp_path / "ready")],
            stdin=subprocess.PIPE,
        )
        wait_until(lambda: (tmp_path / "ready").exists())
        yield process
        process.kill()
        process.communicate()

    def test_a_second_writer_is_told_in_a_sentence(self, tmp_path, holder):
        with (
            pytest.raises(BlockingIOError, match="run: another osls is writing there; wait"),
            only_writer(tmp_path / "run"),
        ):
            pass
        holder.communicate(b"")
        with only_writer(tmp_path / "run"):
            pass
        assert [path.name for path in tmp_path.iterdir()] == ["ready"]

    @POSIX
    def test_a_folder_of_locks_that_somebody_else_made_is_refused(self, tmp_path, monkeypatch):
        """In a shared folder for temporary files, a link could lead the lock to any file of ours."""
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / f"osls-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(PermissionError, match="belongs to somebody else"), only_writer(tmp_path / "run"):
            pass
        assert list((tmp_path / "elsewhere").iterdir()) == []

    def test_a_killed_writer_holds_nothing(self, tmp_path, holder):
        holder.kill()
        holder.wait()
        with only_writer(tmp_path / "run"):
            pass

    @pytest.mark.parametrize("command", ["adapt", "monitor"])
    def test_commands_say_so_and_end_with_2(self, tmp_path, holder, command):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
        frame.assign(kind=np.arange(60) % 2).to_csv(tmp_path / "s.csv", index=False)
        frame.to_csv(tmp_path / "t.csv", index=False)
        run, s, t = (str(tmp_path / name) for name in ("run", "s.csv", "t.csv"))
        arguments = {
            "adapt": ["adapt", "--source", s, "--label", "kind", "--target", t, "--out", run],
            "monitor": ["monitor", str(tmp_path / "model"), t, "--state", run],
        }[command]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2
        assert "another osls is writing there" in done.stderr
        assert isinstance(done.exception, SystemExit)


def test_an_empty_run_file_of_a_power_cut_is_run_again(tmp_path):
    store = Store(tmp_path)
    store.write([{"key": "abc", "study": "s", "started": "now"}])
    (path,) = tmp_path.rglob("abc.json")
    assert store.read("abc")["study"] == "s"
    path.write_text("")
    assert store.read("abc") is None
    assert list(store.rows()) == []
