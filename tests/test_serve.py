"""A model behind HTTP, as a process of its own; what the monitor tells other programs."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import osls
from conftest import FOREST, wait_until
from osls.app.cli import app
from osls.app.files import InputError
from osls.app.predict import load_adapted
from osls.app.serve import Limits, make_app, use_one_thread

FEW = {"source_classifier": FOREST, "discriminator": FOREST, "n_folds": 3, "rounds": 1, "n_bootstrap": 10}


def patients(n: int, shares: tuple[float, float, float], seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, n, p=shares)
    frame = pd.DataFrame(
        {
            "fever": (8.0 * kind + rng.normal(size=n)).round(3),
            "cough": (8.0 * kind + rng.normal(size=n)).round(3),
            "ward": np.where(kind == 1, "south", rng.choice(["north", "south"], n)),
            "case": [f"c{seed}-{i}" for i in range(n)],
        }
    )
    return frame, kind


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    source, kind = patients(200, (0.6, 0.4, 0.0), 0)
    target, _ = patients(300, (0.3, 0.4, 0.3), 1)
    answer = osls.adapt(source.assign(kind=np.array(["cold", "flu"])[kind]), target, "kind", id="case", **FEW)
    folder = tmp_path_factory.mktemp("serve") / "run"
    answer.write(folder)
    return folder


@pytest.fixture(scope="module")
def server(run_folder):
    """The command, listening."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", str(run_folder), "--port", str(port), "--max-rows", "50", "--max-bytes", "20000"]
    process = subprocess.Popen([sys.executable, "-m", "osls.app.cli", *words], env=os.environ)
    address = f"http://127.0.0.1:{port}"

    def listens() -> bool:
        assert process.poll() is None
        try:
            return get(f"{address}/health")[0] == 200
        except OSError:
            return False

    wait_until(listens)
    yield address
    process.send_signal(signal.SIGINT)
    process.wait(60)


def get(address: str, data: bytes | None = None, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def post(address: str, value: object) -> tuple[int, object]:
    status, text = get(address, json.dumps(value).encode())
    return status, json.loads(text)


class TestServe:
    def test_answers_are_those_of_predict(self, server, run_folder):
        rows, _ = patients(20, (0.3, 0.4, 0.3), 2)
        status, found = post(f"{server}/batch", rows.to_dict("records"))
        assert status == 200
        expected = load_adapted(run_folder).predict(rows)
        assert [row["predicted"] for row in found] == expected["predicted"].tolist()
        assert [row["case"] for row in found] == rows["case"].tolist()
        np.testing.assert_allclose([row["novel"] for row in found], expected["novel"], atol=1e-6)
        assert post(f"{server}/predict", rows.to_dict("records")[0]) == (200, found[0])
        assert post(f"{server}/batch", []) == (200, [])

    def test_health_and_metrics(self, server):
        status, text = get(f"{server}/health")
        assert status == 200
        assert json.loads(text)["classes"] == ["cold", "flu", "novel"]
        assert json.loads(text)["columns"] == ["fever", "cough", "ward"]
        before = post(f"{server}/predict", {"fever": 0.1, "cough": 0.3, "ward": "north"})
        assert before[0] == 200
        text = get(f"{server}/metrics")[1]
        assert 'osls_requests_total{status="200"}' in text
        assert 'osls_rows_total{class="cold"}' in text
        assert "osls_seconds_count" in text

    def test_values_that_the_model_does_not_know_are_counted(self, server):
        rows = [{"fever": 0.1, "cough": None, "ward": "cellar"}, {"fever": 0.1, "cough": 1, "ward": "attic"}]
        assert post(f"{server}/batch", rows)[0] == 200
        text = get(f"{server}/metrics")[1]
        assert 'osls_unfamiliar_total{column="cough",what="missing"} 1.0' in text
        assert 'osls_unfamiliar_total{column="ward",what="unknown"} 2.0' in text
        assert 'column="fever"' not in text

    @pytest.mark.parametrize(
        ("path", "body", "status", "words"),
        [
            ("predict", b"{", 400, "not JSON"),
            ("predict", b"[" * 5000, 400, "not JSON"),
            ("predict", b"[]", 400, "/batch"),
            ("batch", b"{}", 400, "list of objects"),
            ("batch", b"[1]", 400, "list of objects"),
            ("predict", b'{"fever": 1, "cough": 1}', 422, "there is no column 'ward'"),
            # Columns that the model needs, too, are no correction of the one that is missing.
            ("predict", b'{"fever": 1, "ward": "a"}', 422, "'cough', which the model needs; add it."),
            ("predict", b"{}", 422, "'fever', which the model needs, nor 'cough', 'ward'; add them."),
            ("predict", b'{"fever": 1, "cough": 1, "wards": "a"}', 422, "did you mean 'wards'?"),
            # A row is answered or refused whatever the other rows hold.
            (
                "batch",
                b'[{"fever": 1, "cough": 1, "ward": "a"}, {"fever": 1}]',
                422,
                "row 2: there is no column 'cough', which the model needs, nor 'ward'; add them.",
            ),
            ("predict", b'{"fever": 1, "cough": 1, "ward": ["north"]}', 422, "'ward' holds a list"),
            (
                "predict",
                b'{"fever": "hot", "cough": 1, "ward": "north"}',
                422,
                "column 'fever' holds numbers",
            ),
            ("predict", b'{"fever": [1], "cough": 1, "ward": "north"}', 422, ""),
            ("batch", json.dumps([{"fever": 1, "ward": "a"}] * 51).encode(), 413, "at most 50"),
            ("batch", b" " * 30_000, 413, "20000 bytes"),
        ],
    )
    def test_bad_requests(self, server, path, body, status, words):
        found, text = get(f"{server}/{path}", body)
        assert found == status
        assert words in json.loads(text)["error"]
        assert get(f"{server}/health")[0] == 200

    def test_other_names_are_refused(self, server):
        assert get(f"{server}/health", Host="evil.example")[0] == 400


def test_forests_answer_in_the_thread_that_asks(run_folder):
    adapted = load_adapted(run_folder)
    models = adapted.adapter._predictor.classifier.predictor.models
    for model in models:
        model.set_params(n_jobs=-1)
    use_one_thread(adapted.adapter._predictor)
    assert [model.n_jobs for model in models] == [1] * len(models)


def test_pictures_are_not_served(run_folder):
    adapted = load_adapted(run_folder / "model")
    object.__setattr__(adapted, "kind", "images")
    with pytest.raises(InputError, match="pictures cannot be served"):
        make_app(adapted, Limits())


# -- The monitor ------------------------------------------------------------------------------------


class Listener(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def listener():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        server.received, server.status = [], 200
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("status", [200, 500])
def test_gauges_and_webhook(run_folder, tmp_path, listener, status):
    listener.status = status
    patients(400, (0.05, 0.05, 0.9), 3)[0].to_csv(tmp_path / "monday.csv", index=False)
    files = {"--state": "state.json", "--out": "page.html", "--prometheus": "osls.prom"}
    words = [word for flag, name in files.items() for word in (flag, str(tmp_path / name))]
    address = f"http://127.0.0.1:{listener.server_port}/hook"
    result = CliRunner().invoke(
        app, ["monitor", str(run_folder), str(tmp_path / "monday.csv"), *words, "--webhook", address]
    )
    assert result.exit_code == 3, result.output
    message = listener.received[0]
    assert message["batch"] == "monday.csv"
    assert "novel" in {alarm["class"] for alarm in message["alarms"]}
    assert ("could not be sent" in result.output) == (status == 500)
    lines = (tmp_path / "osls.prom").read_text().splitlines()
    gauges = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(gauges['osls_share{class="novel"}']) > 0.7
    assert gauges['osls_alarm{class="novel"}'] == "1.0"
    assert gauges["osls_batch_rows"] == "400.0"
    assert gauges["osls_alarms"] == "1.0"


def test_gauges_have_a_place_before_a_batch_is_counted(run_folder, tmp_path):
    patients(50, (0.4, 0.4, 0.2), 3)[0].to_csv(tmp_path / "monday.csv", index=False)
    state, gauges = tmp_path / "state.json", tmp_path / "none" / "osls.prom"
    words = ["--state", str(state), "--out", str(tmp_path / "page.html"), "--prometheus", str(gauges)]
    result = CliRunner().invoke(app, ["monitor", str(run_folder), str(tmp_path / "monday.csv"), *words])
    assert result.exit_code == 2
    assert f"there is no folder {gauges.parent}; make it" in result.output
    assert not state.exists()


def test_a_webhook_is_an_address(run_folder, tmp_path):
    words = ["monitor", str(run_folder), "x.csv", "--state", str(tmp_path / "s"), "--webhook", "file:///etc"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "check --webhook" in result.output
