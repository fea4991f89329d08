"""Scoring on a Dask cluster, a worker that is killed, and training under torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from joblib import parallel_config
from sklearn.ensemble import ExtraTreesClassifier

from conftest import blobs
from osls import PULSE, adapt
from osls.baselines import SourceOnly
from osls.datasets import simulate_osls
from osls.streaming.dask import Scored, estimate_mix, score
from osls.streaming.dask_reader import reader_for
from osls.training import is_main
from osls.training.ddp import synced_batch_norm, world_size

distributed = pytest.importorskip("distributed")
dd = pytest.importorskip("dask.dataframe")

FEATURES = [f"x{j}" for j in range(5)]


@contextmanager
def local_cluster(workers, *, processes):
    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=processes, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def cluster():
    """Two workers of one thread each, with nannies that start a killed one again."""
    with local_cluster(2, processes=True) as client:
        yield client


@pytest.fixture(scope="module")
def model():
    problem = simulate_osls(*blobs(0), novel=[3], random_state=0)
    pulse = PULSE(source_classifier="linear", discriminator="linear", rounds=1, random_state=0)
    return pulse.fit(**problem.training_data())


def table(seed: int, sizes: tuple[int, ...]) -> pd.DataFrame:
    X, y = blobs(seed, sizes)
    order = np.random.default_rng(seed).permutation(len(y))
    return pd.DataFrame(X[order], columns=FEATURES).assign(id=np.arange(len(y)), kind=y[order])


@pytest.fixture(scope="module")
def target() -> pd.DataFrame:
    return table(1, (3000, 1000, 2000, 2000))


@pytest.fixture(scope="module")
def parquet(target, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    for i, rows in enumerate(np.array_split(np.arange(len(target)), 40)):
        target.iloc[rows].to_parquet(folder / f"{i:02d}.parquet", index=False)
    return folder


@pytest.fixture(scope="module")
def reference(model, cluster) -> Scored:
    held_out = dd.from_pandas(table(2, (400, 400, 400)), npartitions=3)
    return score(model, held_out, label="kind", columns=FEATURES, client=cluster)


def predictions(scored: Scored) -> pd.DataFrame:
    return pd.concat([pd.read_parquet(file) for file in scored.files], ignore_index=True)


class TestScoring:
    def test_parquet_and_frames_are_scored_as_by_the_model_itself(
        self, model, cluster, target, parquet, reference, tmp_path
    ):
        by_path = score(
            model, parquet, out=tmp_path / "a", columns=FEATURES, ids=["id"], label="kind", client=cluster
        )
        frame = dd.from_pandas(target, npartitions=7)
        by_frame = score(model, frame, out=tmp_path / "b", columns=FEATURES, ids=["id"], client=cluster)
        proba = model.predict_proba(target[FEATURES].to_numpy())
        expected = pd.DataFrame(
            proba[:, [3, 0, 1, 2]], columns=["novel", "p_0", "p_1", "p_2"], dtype=np.float32
        )
        for scored, n_files in ((by_path, 40), (by_frame, 7)):
            assert scored.rows == len(target)
            assert len(scored.files) == n_files
            found = predictions(scored)
            assert found["id"].tolist() == target["id"].tolist()
            assert found["predicted"].tolist() == model.classes_[proba.argmax(axis=1)].tolist()
            np.testing.assert_allclose(found[expected.columns], expected, atol=1e-5)
            np.testing.assert_allclose(scored.summary.mean, proba.mean(axis=0), atol=1e-6)
        assert [part.n for part in by_path.by_class] == [3000, 1000, 2000]
        assert by_frame.by_class is None

        truth = np.array([3000, 1000, 2000, 2000]) / 8000
        for scored in (by_path, by_frame):
            for against, method in ((reference, "bins"), (None, "em")):
                mix = estimate_mix(scored, against)
                assert mix.method == method
                np.testing.assert_allclose(mix.marginal, truth, atol=0.03)
                assert (mix.interval[:, 0] <= mix.marginal).all()
                assert (mix.marginal <= mix.interval[:, 1]).all()
        assert mix.novel_interval[0] <= mix.novel_share <= mix.novel_interval[1]

    def test_a_worker_killed_in_the_middle_changes_nothing(
        self, model, cluster, parquet, reference, tmp_path
    ):
        options = {"columns": FEATURES, "ids": ["id"], "client": cluster}
        calm = score(model, parquet, out=tmp_path / "calm", **options)
        victim = next(iter(cluster.run(os.getpid).values()))
        done_by_then: list[int] = []

        def kill_one_soon() -> None:
            while not (done := len(list((tmp_path / "storm").glob("part-*.parquet")))):
                time.sleep(0.002)
            os.kill(victim, signal.SIGKILL)
            done_by_then.append(done)

        killer = threading.Thread(target=kill_one_soon)
        killer.start()
        storm = score(_Slow(model), parquet, out=tmp_path / "storm", **options)
        killer.join()
        assert 0 < done_by_then[0] < 40
        assert victim not in cluster.run(os.getpid).values()
        assert storm.rows == calm.rows == 8000
        pd.testing.assert_frame_equal(predictions(storm), predictions(calm))
        assert storm.summary.to_bytes() == calm.summary.to_bytes()
        one, other = estimate_mix(calm, reference), estimate_mix(storm, reference)
        np.testing.assert_array_equal(one.marginal, other.marginal)
        np.testing.assert_array_equal(one.interval, other.interval)
        left = {path.name for path in (tmp_path / "storm").iterdir()}
        assert left == {path.name for path in storm.files}

    def test_an_object_that_predicts_tables(self, cluster, target, parquet):
        scored = score(_ByThreshold(), parquet, label="kind", client=cluster)
        assert scored.classes == ("0", "1", "2", "novel")
        assert scored.by_class is not None
        assert [part.n for part in scored.by_class] == [3000, 1000, 2000]
        share = float((target["x0"] > 3).mean())
        assert scored.summary.mean[-1] == pytest.approx(0.8 * share + 0.1 * (1 - share), abs=1e-6)
        assert scored.prior is None
        assert estimate_mix(scored).method == "mean"

    def test_a_bundle_for_any_table(self, cluster, target, parquet, tmp_path):
        source = table(3, (150, 150, 150)).astype({"kind": str})
        answer = adapt(source.drop(columns="id"), target[FEATURES].iloc[:600], label="kind", fast=True)
        scored = score(answer.adapted, parquet, out=tmp_path, ids=["id"], label="kind", client=cluster)
        assert scored.classes == ("0", "1", "2", "novel")
        assert [part.n for part in scored.by_class] == [3000, 1000, 2000]
        found = predictions(scored)
        expected = answer.adapted.predict(target)
        assert found["predicted"].tolist() == expected["predicted"].tolist()
        np.testing.assert_allclose(found["novel"], expected["novel"], atol=1e-5)
        assert found["id"].tolist() == target["id"].tolist()
        assert estimate_mix(scored).method == "em"

    def test_an_error_in_a_partition_says_which(self, model, cluster, target, tmp_path):
        broken = target.copy()
        broken.loc[4000, "x1"] = np.nan
        with pytest.raises(ValueError, match="NaN") as caught:
            score(
                model,
                dd.from_pandas(broken, npartitions=4),
                out=tmp_path,
                columns=FEATURES,
                client=cluster,
                retries=0,
            )
        assert "while scoring partition 2" in caught.value.__notes__
        assert not (tmp_path / "part-00002.parquet").exists()

    def test_a_cluster_of_its_own(self, model, parquet):
        scored = score(model, parquet / "00.parquet", columns=FEATURES, n_workers=1)
        assert scored.rows == 200

    def test_an_address_will_do(self, model, cluster, parquet):
        address = cluster.scheduler.address
        assert score(model, str(parquet / "01.parquet"), columns=FEATURES, client=address).rows == 200


class _Slow:
    """The same model, slow enough to be killed in the middle."""

    def __init__(self, model: PULSE):
        self.model = model
        self.classes_, self.n_features_in_ = model.classes_, model.n_features_in_
        self.target_marginal_ = model.target_marginal_

    def predict_proba(self, X):
        time.sleep(0.05)
        return self.model.predict_proba(X)


class _ByThreshold:
    """What a bundle for tables looks like from outside."""

    classes = ("0", "1", "2", "novel")

    def predict(self, rows: pd.DataFrame) -> pd.DataFrame:
        novel = np.where(rows["x0"] > 3, 0.8, 0.1)
        known = {f"p_{name}": (1 - novel) / 3 for name in self.classes[:-1]}
        return pd.DataFrame({"predicted": "0", "novel": novel, **known})


class TestFitting:
    """One fit spread over a cluster by joblib's own backend for Dask."""

    def pulse(self, **parameters):
        trees = ExtraTreesClassifier(20)
        common = {"source_classifier": trees, "discriminator": trees, "n_folds": 3, "n_bootstrap": 5}
        return PULSE(**{**common, "rounds": 1, "random_state": 0, **parameters})

    # Each worker trains the networks of some folds. Where the sums of one stack end in the middle of a vector
    # of the processor, those of another do not: networks agree but for rounding, trees to the bit.
    @pytest.mark.parametrize(
        ("parameters", "rounding"),
        [({}, 0.0), ({"discriminator": "mlp", "max_steps": 60}, 2e-3)],
        ids=["trees", "mlp"],
    )
    def test_the_answer_is_that_of_one_process(self, cluster, parameters, rounding):
        rows = simulate_osls(*blobs(3), novel=[3], random_state=0).training_data()
        alone = self.pulse(**parameters).fit(**rows)
        with parallel_config(backend="dask"):
            spread = self.pulse(**parameters).fit(**rows)
        np.testing.assert_allclose(spread.target_proba_, alone.target_proba_, rtol=0, atol=rounding)
        np.testing.assert_allclose(spread.marginal_interval_, alone.marginal_interval_, rtol=0, atol=rounding)

    def test_a_worker_killed_in_the_middle_changes_nothing(self, cluster):
        rows = simulate_osls(*blobs(3, (600, 600, 600, 600)), novel=[3], random_state=0).training_data()
        large = ExtraTreesClassifier(150)
        parameters = {"source_classifier": large, "discriminator": large}
        alone = self.pulse(**parameters).fit(**rows)
        victim = next(iter(cluster.run(os.getpid).values()))
        killed = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
        killed.start()
        with parallel_config(backend="dask"):
            spread = self.pulse(**parameters).fit(**rows)
        killed.join()
        assert victim not in cluster.run(os.getpid).values()
        np.testing.assert_array_equal(spread.target_proba_, alone.target_proba_)


@pytest.fixture(scope="module")
def inside():
    """A worker in this process: quick, for what does not depend on there being several."""
    with local_cluster(1, processes=False) as client:
        yield client


class TestParts:
    def test_a_large_file_is_cut_at_its_row_groups(self, inside, tmp_path):
        n = 1 << 18
        frame = pd.DataFrame({"x0": np.resize(np.float32([0, 5]), n)})
        frame.to_parquet(tmp_path / "rows.parquet", row_group_size=n // 2)
        scored = score(_ByThreshold(), tmp_path / "rows.parquet", out=tmp_path / "out", client=inside)
        assert scored.rows == n
        assert [file.name for file in scored.files] == ["part-00000.parquet"]
        assert scored.summary.mean[-1] == pytest.approx(0.45)

    def test_empty_row_groups_and_partitions_are_passed_over(self, inside, tmp_path):
        rows = pa.table({"x0": [0.0, 5.0]})
        with pq.ParquetWriter(tmp_path / "rows.parquet", rows.schema) as writer:
            for part in (rows[:0], rows):
                writer.write_table(part)
        assert score(_ByThreshold(), tmp_path / "rows.parquet", client=inside).rows == 2
        frame = dd.from_pandas(rows.to_pandas(), npartitions=2)
        frame = frame[frame["x0"] > 1]
        scored = score(_ByThreshold(), frame, out=tmp_path / "out", client=inside)
        assert scored.rows == 1
        assert [len(pd.read_parquet(file)) for file in scored.files] == [0, 1]

    def test_what_dead_workers_left_is_removed(self, inside, tmp_path):
        pd.DataFrame({"x0": [0.0]}).to_parquet(tmp_path / "rows.parquet")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / ".part-00003.parquet.x1y2").touch()
        score(_ByThreshold(), tmp_path / "rows.parquet", out=tmp_path / "out", client=inside)
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["part-00000.parquet"]

    def test_a_label_without_a_known_class(self, inside, tmp_path):
        pd.DataFrame({"x0": [0.0], "kind": ["other"]}).to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(
            ValueError, match=r"label: no row's 'kind' is one of the known classes \('0', '1'"
        ):
            score(_ByThreshold(), tmp_path / "rows.parquet", label="kind", client=inside)

    def test_no_rows_at_all(self, tmp_path):
        pq.ParquetWriter(tmp_path / "rows.parquet", pa.schema([("x0", pa.float64())])).close()
        with pytest.raises(ValueError, match=r"data: .*rows\.parquet holds no rows"):
            score(_ByThreshold(), tmp_path / "rows.parquet")

    def test_columns_are_those_of_the_fit(self, target):
        frame = table(2, (30, 30, 30))
        fitted = SourceOnly(source_classifier="linear", n_folds=2, random_state=0)
        fitted.fit(frame[FEATURES[::-1]], frame["kind"], X_target=target[FEATURES[::-1]][:100])
        reader = reader_for(fitted, target, None, ["id"], "kind")
        assert reader.columns == tuple(FEATURES[::-1])


class TestReading:
    def test_mistakes_are_named(self, model, target, tmp_path):
        with pytest.raises(ValueError, match="fitted to 5 features; 7 columns"):
            reader_for(model, target, None, [], None)
        with pytest.raises(ValueError, match=r"ids and label: the data has no column 'key'; it has x0, x1"):
            reader_for(model, target, FEATURES, ["key"], None)
        with pytest.raises(ValueError, match="columns: the data has no column 'x9'"):
            reader_for(model, target, [*FEATURES[:4], "x9"], [], None)
        with pytest.raises(ValueError, match="column 'x4' is of type"):
            reader_for(model, target.astype({"x4": str}), FEATURES, [], None)
        with pytest.raises(TypeError, match="cannot score with dict"):
            reader_for({}, target, None, [], None)
        with pytest.raises(TypeError, match="data must be a Dask DataFrame or the path"):
            score(model, target)
        target.to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(TypeError, match="client must be"):
            score(model, tmp_path / "rows.parquet", columns=FEATURES, client=3)

    def test_predictions_are_not_overwritten(self, model, parquet, tmp_path):
        (tmp_path / "part-00000.parquet").touch()
        with pytest.raises(ValueError, match="holds predictions already"):
            score(model, parquet, out=tmp_path, columns=FEATURES)

    def test_ids_and_label_are_no_features(self, model, target):
        reader = reader_for(model, target, None, ["id"], "kind")
        assert reader.columns == tuple(FEATURES)
        assert reader.needed == [*FEATURES, "id", "kind"]
        assert reader.true_classes(target.assign(kind=target["kind"].astype(float))).max() == 2

    def test_references_must_be_labelled_and_alike(self, reference):
        unlabelled = Scored(reference.classes, reference.summary, None, (), reference.prior)
        with pytest.raises(ValueError, match="without labels"):
            estimate_mix(reference, unlabelled)
        other = Scored((0, 1, 9, -1), reference.summary, reference.by_class, (), None)
        with pytest.raises(ValueError, match="classes differ"):
            estimate_mix(reference, other)

    def test_importing_what_training_needs_does_not_load_dask(self):
        code = "import osls.training.trainer, sys; print('dask' in sys.modules, 'distributed' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["False", "False"]

    def test_without_dask_the_message_says_what_to_install(self):
        code = (
            "import sys; sys.modules['distributed'] = None\n"
            "try:\n from osls.streaming.dask import score\n"
            "except ImportError as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "pip install 'osls[dask]'" in done.stdout


FIT = """
import json
from pathlib import Path
import numpy as np
import torch
from joblib import parallel_config
from sklearn.ensemble import ExtraTreesClassifier
from conftest import blobs
from torch import nn
from osls import PULSE, adapt
from osls.datasets import simulate_osls
from osls.training.ddp import rank, stream_seed, world_size
from osls.training.trainer import Schedule, Trainer

# Without dropout, parts of a batch must give the very steps of the whole, whatever a process began with.
torch.manual_seed(rank())
network = nn.Sequential(nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
if rank() == 0:
    for i, weight in enumerate(network.parameters()):
        weight.data = torch.linspace(-0.5, 1, weight.numel()).sin().reshape(weight.shape) + 0.1 * i
batches = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 64, 3)).astype(np.float32))
mine = iter(batches[:, rank()::world_size()])

def loss_of_next_batch():
    x = next(mine)
    return (network(x) - x.prod(dim=1, keepdim=True)).square().mean()

trainer = Trainer(network, Schedule(steps=30, batch_size=64, learning_rate=0.05, decay=False))
loss = trainer.run(loss_of_next_batch, 30)
outputs = network.eval()(batches[0, :5]).detach().flatten().tolist()

problem = simulate_osls(*blobs(0, (300, 300, 300, 300)), novel=[3], random_state=0)
model = PULSE(
    source_classifier="mlp", discriminator="mlp", max_steps=100, n_folds=2, rounds=1, n_bootstrap=10,
    random_state=0,
).fit(**problem.training_data())
truth = np.where(np.isin(problem.y_target, model.classes_), problem.y_target, -1)
answer = {
    "rank": rank(), "world": world_size(), "outputs": [*outputs, loss],
    "novel": model.novel_prevalence_, "interval": model.novel_interval_,
    "accuracy": float(np.mean(model.target_labels_ == truth)),
    "new rows": model.predict_proba(problem.X_test).sum(axis=0).tolist(),
    "sum": float(model.target_proba_.sum(axis=0) @ np.arange(len(model.classes_))),
}
try:
    stream_seed(rank())
except RuntimeError as error:
    answer["different seeds"] = str(error)
# A file each: what two processes print at once may end up on one line.
Path(__file__).with_name(f"{world_size()}-{rank()}.json").write_text(json.dumps(answer))
"""


def fit_in_processes(n: int, script: Path) -> subprocess.CompletedProcess[str]:
    places = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(n)] if n > 1 else []
    return subprocess.run(
        [sys.executable, *launch, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(places)},
        timeout=1800,
        check=False,
    )


class TestTorchrun:
    def test_two_processes_agree_with_each_other_and_with_one(self, tmp_path):
        script = tmp_path / "fit.py"
        script.write_text(FIT)
        found = {}
        for n in (1, 2):
            done = fit_in_processes(n, script)
            assert done.returncode == 0, done.stderr
            rows = [json.loads(path.read_text()) for path in tmp_path.glob(f"{n}-*.json")]
            assert sorted(row.pop("rank") for row in rows) == list(range(n))
            assert all(row == rows[0] for row in rows)
            assert rows[0]["world"] == n
            found[n] = rows[0]
        assert found[2]["outputs"] == pytest.approx(found[1]["outputs"], abs=1e-4)
        assert found[1]["sum"] != found[2]["sum"]  # not merely the same computation twice
        # Two processes draw other batches than one, which is like another seed: with so few steps and folds
        # the shares of three seeds in one process are .576, .578 and .650.
        for one, other in ((1, 2), (2, 1)):
            low, high = found[one]["interval"]
            assert low <= found[other]["novel"] <= high
        assert found[2]["accuracy"] == pytest.approx(found[1]["accuracy"], abs=0.03)
        assert "given different seeds" in found[2]["different seeds"]
        assert "different seeds" not in found[1]

    @pytest.mark.parametrize("options", [{}, {"affine": False}, {"track_running_stats": False}], ids=str)
    def test_a_group_of_one_norms_a_batch_as_torch_does(self, options, tmp_path):
        x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
        mine, theirs = torch.nn.BatchNorm1d(3, **options), torch.nn.BatchNorm1d(3, **options)
        torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
        try:
            with synced_batch_norm(mine):
                torch.testing.assert_close(mine(x), theirs(x))
                torch.testing.assert_close(mine.eval()(x), theirs.eval()(x))
        finally:
            torch.distributed.destroy_process_group()
        torch.testing.assert_close(mine.state_dict(), theirs.state_dict())

    def test_a_torch_without_processes_is_alone(self, monkeypatch):
        monkeypatch.setattr("torch.distributed.is_available", lambda: False)
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert world_size() == 1

    def test_alone_nothing_is_shared(self):
        from osls.training import ddp
        from osls.training.trainer import Schedule

        assert is_main()
        assert ddp.world_size() == 1
        assert ddp.stream_seed(7) == 7
        schedule = Schedule.for_rows(10_000)
        assert schedule.shared() is schedule
        assert schedule.epoch(10_000) == 10_000 // schedule.batch_size
