"""The profile "paper": what its runs train, measured where they train, against the paper's appendix."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from osls.app.bench.execute import _check_memory
from osls.app.bench.methods import run_method
from osls.app.bench.network_plans import NETWORKS, NetworkPlan, NetworkSpec, as_in_paper
from osls.app.bench.study import Run, load_study, parse_study, runs_of
from osls.datasets import OSLSProblem, simulate_osls
from osls.training.nets.augment import RandomShiftFlip
from osls.training.nets.features import TextCNNFeatures
from osls.training.nets.resnet import ResNetFeatures, load_weights
from osls.training.trainer import Schedule, Trainer
from test_bench import content

STUDIES = sorted((Path(__file__).parents[1] / "benchmarks" / "studies").glob("*-paper.yml"))


class Appendix(NamedTuple):
    """A line of the appendix "Details on the Experimental Setup", and the size of the images."""

    optimizer: type[torch.optim.Optimizer]
    rate: float
    weight_decay: float
    batch: int
    epochs: int
    decay: tuple[float, float] | None  # every so many epochs, by this factor
    shape: tuple[int, ...]


SGD, ADAM = torch.optim.SGD, torch.optim.Adam
CIFAR = Appendix(SGD, 0.1, 5e-4, 200, 200, (70, 0.1), (3, 32, 32))
TEXT = Appendix(ADAM, 1e-4, 0.0, 200, 120, None, (160,))
MEDICAL = Appendix(SGD, 1e-4, 5e-4, 32, 80, (1, 0.96), (3, 224, 224))
APPENDIX = {
    "cifar10": CIFAR,
    "cifar100": CIFAR,
    "entity30": CIFAR._replace(batch=32, shape=(3, 64, 64)),
    "newsgroups": TEXT,
    "tabula-muris": Appendix(ADAM, 1e-4, 0.0, 200, 40, None, (50,)),
    "breakhis": MEDICAL,
    "dermnet": MEDICAL,
    "utkface": MEDICAL._replace(shape=(3, 128, 128)),
}


def problem_of(run: Run) -> OSLSProblem:
    """Few rows of the shape that the run's data set would have; of images, the side that its options name."""
    shape = APPENDIX[run.config["data"]["name"]].shape
    side = run.config["data"].get("options", {}).get("size", shape[-1])
    shape = (*shape[:-2], side, side) if len(shape) == 3 else shape
    rng = np.random.default_rng(0)
    count = 120 if shape[-1] > 200 else 240
    y = np.arange(count) % 4
    X = rng.integers(1, 9, size=(count, *shape)).astype(np.uint8 if len(shape) == 3 else np.float64)
    return simulate_osls(X, y, novel=[3], source_fraction=(0.5, 0.5), test_size=0, random_state=0)


class EnoughSeenError(Exception):
    """Raised at the second training of a run."""


class Training(NamedTuple):
    """What a trainer was about to do."""

    trainer: Trainer
    input_shape: tuple[int, ...]


@pytest.fixture
def trainings(monkeypatch):
    """Run no step but the first of every training, and stop at the second training."""
    seen: list[Training] = []

    def first_step(self, loss_of_next_batch, steps):
        if all(self is not training.trainer for training in seen):
            shapes = []
            deep = isinstance(self.network, nn.ModuleDict)
            takes_rows = self.network["features"] if deep else self.network
            hook = takes_rows.register_forward_pre_hook(lambda _, args: shapes.append(args[0].shape))
            loss_of_next_batch()
            hook.remove()
            # A stack of networks has an axis of members in front.
            seen.append(Training(self, tuple(shapes[0][1 if deep else 2 :])))
            if deep or len(seen) == 2:
                raise EnoughSeenError
        self.steps_done += steps
        return 0.0

    monkeypatch.setattr(Trainer, "run", first_step)
    return seen


def small(run: Run) -> NetworkPlan:
    """The run's network, narrow and without a file of weights, which this machine need not have."""
    spec = NetworkSpec.model_validate(run.config["network"])
    narrow = {"weights": None, "pretrain": None, "width": 2 if spec.body.startswith("resnet") else spec.width}
    vectors = np.zeros((10, 4), dtype=np.float32) if spec.body == "text-cnn" else None
    return NetworkPlan(spec.model_copy(update=narrow), vectors)


def first_runs() -> list[Run]:
    """The first run of every data set of every study of the profile."""
    firsts: dict[tuple[str, str], Run] = {}
    for path in STUDIES:
        for run in runs_of(load_study(path)):
            firsts.setdefault((run.study, run.data), run)
    return list(firsts.values())


@pytest.mark.parametrize("run", first_runs(), ids=lambda run: f"{run.study}-{run.data}")
def test_first_runs_train_as_the_appendix_says(run, trainings):
    """Both trainings of the paper's recipe, of source classifier and discriminator; UAN's first."""
    problem, expected = problem_of(run), APPENDIX[run.config["data"]["name"]]
    deep = run.config["method"]["name"] == "uan"
    parameters = run.config["method"].get("parameters", {})
    with pytest.raises(EnoughSeenError):
        run_method(run.config["method"]["name"], problem, seed=0, parameters=parameters, network=small(run))
    n, m = len(problem.y_source), len(problem.y_target)
    for training, rows in zip(trainings, (max(n, m),) if deep else (n, max(n, m)), strict=True):
        schedule: Schedule = training.trainer.schedule
        optimizer, group = training.trainer._optimizer, training.trainer._optimizer.param_groups[0]
        # A fifth is held out (UAN's authors hold out nothing); an epoch is every training row once.
        low, high = (rows, rows) if deep else (int(0.79 * rows), int(0.81 * rows) + 1)
        trained = [count // expected.batch or 1 for count in range(low, high + 1)]
        assert schedule.steps in {expected.epochs * epoch for epoch in trained}
        assert type(optimizer) is expected.optimizer
        assert group["lr"] == (1e-3 if deep else expected.rate)
        assert group["weight_decay"] == expected.weight_decay
        assert schedule.batch_size == expected.batch
        if expected.decay is None:
            assert (schedule.decay_every, schedule.decay) == (None, False)
        else:
            assert schedule.decay_every in {expected.decay[0] * epoch for epoch in trained}
            assert schedule.gamma == expected.decay[1]
        assert training.input_shape == expected.shape
        crops = [m for m in training.trainer.network.modules() if isinstance(m, RandomShiftFlip)]
        assert bool(crops) == (len(expected.shape) == 3)
        # One network: one split.
        assert deep or len(training.trainer.network.networks) == 1


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_method_has_one_split_and_open_set_methods_their_own_rates(path):
    rates = {"backprop-oda": 1e-3, "sta-original": 1e-3, "uan": 1e-3, "cmu": 1e-2, "dance": 1e-2}
    for run in runs_of(load_study(path)):
        method, schedule = run.config["method"], run.config["network"]["schedule"]
        if method["name"] in ("k-pu", "k-pu-alternative", "domain-disc", "source-only"):
            assert method["parameters"]["n_folds"] == 1
        if schedule["optimizer"] == "sgd" and schedule["learning_rate"] != 1e-4:
            assert schedule["learning_rate"] == rates.get(method["name"], 0.1)
        assert "max_steps" not in method.get("parameters", {})


def test_a_study_may_still_ask_for_folds():
    study = parse_study(content(profile="paper", data=["cifar10"], methods=["k-pu"], defaults={"n_folds": 3}))
    assert runs_of(study)[0].config["method"]["parameters"] == {"n_folds": 3}


def test_rates_of_the_open_set_methods_by_hand():
    cifar, text = NETWORKS["resnet18-small-images"], NETWORKS["text-cnn"]
    dance, uan = (as_in_paper(cifar, name).schedule for name in ("dance", "uan"))
    assert (dance.learning_rate, dance.decay, uan.learning_rate, uan.decay) == (1e-2, "none", 1e-3, "steps")
    assert as_in_paper(text, "dance") == text
    assert as_in_paper(cifar, "k-pu") == cifar
    assert as_in_paper(NETWORKS["resnet50-medical"], "backprop-oda") == NETWORKS["resnet50-medical"]


def test_missing_imagenet_weights_are_an_error_that_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("OSLS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"resnet50-imagenet\.pth are not there: put a file"):
        NetworkPlan(NETWORKS["resnet50-medical"])((3, 32, 32), 2)


def test_weights_are_found_in_the_folder_of_data(monkeypatch, tmp_path):
    monkeypatch.setenv("OSLS_DATA", str(tmp_path))
    given = ResNetFeatures(18, 3, "small", 2)
    torch.save(given.state_dict(), tmp_path / "mine.pth")
    body = NetworkPlan(NetworkSpec(body="resnet18", stem="small", width=2, weights="mine.pth"))((3, 8, 8))
    torch.testing.assert_close(body.conv1.weight, given.conv1.weight)


def test_weights_that_say_shortcut_are_accepted(tmp_path):
    """As the SimCLR weights for CIFAR that the paper uses are named."""
    given = ResNetFeatures(18, 3, "small", 2)
    state = {name.replace("downsample", "shortcut"): value for name, value in given.state_dict().items()}
    assert any("shortcut" in name for name in state)
    torch.save(state, tmp_path / "weights.pth")
    body = ResNetFeatures(18, 3, "small", 2)
    load_weights(body, tmp_path / "weights.pth")
    torch.testing.assert_close(body.layer2[0].downsample[0].weight, given.layer2[0].downsample[0].weight)


def test_word_vectors_are_trained_unless_frozen():
    vectors = torch.ones(5, 4)
    assert TextCNNFeatures(vectors).vectors.requires_grad
    assert not TextCNNFeatures(vectors, frozen=True).vectors.requires_grad
    plan = NetworkPlan(NetworkSpec(body="text-cnn", frozen=True), np.ones((5, 4), dtype=np.float32))
    assert not plan((200,)).vectors.requires_grad


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({"body": "mlp", "augment": False}, "augment: the network 'mlp' has no use for it"),
        ({"body": "resnet18", "frozen": True}, "frozen: the network 'resnet18' has no use for it"),
        ({"body": "text-cnn", "stem": "small"}, "stem: the network 'text-cnn' has no use for it"),
    ],
)
def test_keys_that_a_network_has_no_use_for_are_refused(network, message):
    with pytest.raises(ValueError, match="study") as caught:
        parse_study(content(networks={"mine": network}))
    assert message in str(caught.value)


def test_images_are_shifted_and_mirrored_in_training_only():
    body = NetworkPlan(NETWORKS["resnet18-small-images"].model_copy(update={"width": 2}))((3, 32, 32))
    assert body.augment.pixels == 4
    large = NetworkPlan(NetworkSpec(body="resnet50", width=2))((3, 224, 224))
    assert large.augment.pixels == 16
    plain = NetworkPlan(NetworkSpec(body="resnet18", width=2, augment=False))((3, 32, 32))
    assert isinstance(plain.augment, nn.Identity)


def images_like(side: np.ndarray) -> OSLSProblem:
    """A problem with these images on both sides, which take no memory."""
    y, shares = np.zeros(len(side), dtype=int), np.array([1.0, 0.0])
    return OSLSProblem(side, y, side, side[:0], np.array([0]), shares[:1], -1, y, y[:0], shares)


def test_images_that_would_not_fit_are_refused_before_training():
    """A million images of 1,024 pixels a side, as numbers of four bytes: 4 * 3 * 2 ** 20 * 10 ** 6 bytes."""
    side = np.broadcast_to(np.uint8(0), (500_000, 1024, 1024, 3))
    problem = images_like(side)
    with pytest.raises(
        ValueError, match=r"1,000,000 images of shape \(1024, 1024, 3\) take 11719 GB and .* lower"
    ):
        _check_memory(problem)
    _check_memory(images_like(side[:2, :8, :8]))
