"""The rivals beside the code they come from, on the same rows, in the setting of that code.

    python benchmarks/originals.py color --code CLONE

CLONE is a checkout of the original: color is github.com/Shra1-25/CoLOR, ovanet VisionLearningGroup/OVANet,
eulac maljh/EULAC_deep_implement (not by the authors, who have published none), kernel_prior teisseyrep/TCPU,
lacforest nju-xuf/LACForest. Nothing of them is kept here: their functions are imported and run. What they
need of a graphics card, of pictures or of a package that only logs has a stand-in; `replaced` says which.
Rows of the same rival, data and seed replace earlier ones in the file of results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from osls.app.bench.draws import draw_problem
from osls.baselines import EULAC, CoLOR, LACForest, OVANet
from osls.datasets import OSLSProblem
from osls.mixture import KernelPrior
from osls.training.nets.features import MLPFeatures
from osls.training.predictors import Encoder

RESULTS = Path(__file__).parent / "results" / "originals.json"
Row = dict[str, Any]
# Numbers of classes (k: novel) and scores that are higher for rows that look novel, of any rows.
Predict = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


# -- Common parts --------------------------------------------------------------------------------------------


def stand_in(name: str, **attributes: Any) -> types.ModuleType:
    """Put a module with these attributes where an import finds it, and packages for the parts of its name."""
    parent = name.rpartition(".")[0]
    if parent and parent not in sys.modules:
        stand_in(parent)
    module = types.ModuleType(name)
    module.__dict__.update(attributes)
    sys.modules[name] = module
    return module


def load_for_cpu(path: Path, name: str, *changes: tuple[str, str]) -> types.ModuleType:
    """Run a file of the original as the module ``name``, without its calls for a graphics card."""
    text = path.read_text(encoding="utf-8").replace(".cuda()", "")
    for old, new in changes:
        if old not in text:
            raise ValueError(f"{path.name} has changed: {old!r} is not in it.")
        text = text.replace(old, new)
    module = stand_in(name, __file__=str(path))
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


@dataclass(frozen=True)
class Given:
    """A problem as the originals want it: scaled like ours, classes numbered from 0, novel ones k."""

    problem: OSLSProblem
    encode: Callable[[Any], np.ndarray]

    @classmethod
    def draw(cls, data: str, seed: int, **options: Any) -> Given:
        problem = draw_problem({"name": data, "rows": 2000, **options}, draw=seed)
        return cls(problem, Encoder(np.concatenate([problem.X_source, problem.X_target])))

    @property
    def k(self) -> int:
        return len(self.problem.classes)

    def number(self, y: Any) -> np.ndarray:
        numbers = np.searchsorted(self.problem.classes, y)
        return np.where(np.isin(y, self.problem.classes), numbers, self.k)

    def source(self) -> tuple[Tensor, Tensor]:
        return self._tensors(self.problem.X_source, self.problem.y_source)

    def target(self) -> tuple[Tensor, Tensor]:
        return self._tensors(self.problem.X_target, self.problem.y_target)

    def _tensors(self, X: Any, y: Any) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(np.asarray(self.encode(X), np.float32)), torch.from_numpy(self.number(y))

    def score(self, original: Predict, ours: Any) -> Row:
        """Accuracy of both on the test rows and the target, and how well the target's novel rows rank."""
        p, row = self.problem, {}
        for name, predict in (("original", original), ("ours", self._predict_with(ours))):
            for side, X, y in (("test", p.X_test, p.y_test), ("target", p.X_target, p.y_target)):
                labels, novelty = predict(X)
                row[f"{side}_{name}"] = round(float(np.mean(labels == self.number(y))), 3)
            row[f"auroc_{name}"] = round(float(roc_auc_score(self.number(p.y_target) == self.k, novelty)), 3)
        return dict(
            sorted(row.items(), key=lambda item: ("test", "target", "auroc").index(item[0].split("_")[0]))
        )

    def _predict_with(self, model: Any) -> Predict:
        fitted = model.fit(**self.problem.training_data())

        def predict(X: Any) -> tuple[np.ndarray, np.ndarray]:
            # What the model says of the target it was fitted to is part of the method (out-of-fold outputs).
            proba = fitted.target_proba_ if X is self.problem.X_target else fitted.predict_proba(X)
            return proba.argmax(axis=1), proba[:, -1]

        return predict


def batches(
    rows: tuple[Tensor, ...], size: int, *, balanced: bool = False, shuffle: bool = True
) -> DataLoader:
    sampler = None
    if balanced:
        y = rows[1]
        sampler = WeightedRandomSampler((1.0 / torch.bincount(y).clamp_min(1))[y].tolist(), len(y))
    shuffle = shuffle and sampler is None
    return DataLoader(
        TensorDataset(*rows), size, shuffle=shuffle, sampler=sampler, drop_last=shuffle or balanced
    )


# -- CoLOR ---------------------------------------------------------------------------------------------------

RECALLS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)
# Theirs, and with the optimiser that all networks here have: their options allow both.
FORMS: dict[str, dict[str, Any]] = {
    "their optimiser": {
        "optimizer": "sgd",
        "learning_rate": 0.01,
        "weight_decay": 5e-4,
        "constrained_penalty": 1e-2,
    },
    "our optimiser": {
        "optimizer": "adamw",
        "learning_rate": 2e-3,
        "weight_decay": 3e-2,
        "constrained_penalty": 0.0,
    },
}


def color(code: Path, data: str, seed: int) -> Iterator[Row]:
    """One novel class, as theirs: its share is below the largest recall. 200 epochs, a fifth held out."""
    module, given = _import_color(code), Given.draw(data, seed)
    ours = CoLOR(recalls=RECALLS, false_alarms=0.005, random_state=seed)
    for form, options in FORMS.items():
        if form == "their optimiser" or seed == 0:
            found = given.score(_train_color(module, given, seed, **options), ours)
            yield {"form": form, **found, "replaced": "network, Lightning, what is only logged"}


@cache
def _import_color(code: Path) -> types.ModuleType:
    sys.path.insert(0, str(code))

    class Lightning(nn.Module):
        """What the training asks of Lightning."""

        current_epoch = 0

        def log(self, *_: Any, **__: Any) -> None:
            """Keep nothing."""

    def accuracy(**_: Any) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda logits, y: (logits.argmax(dim=1) == y).float().mean()

    def get_model(
        arch: Any,
        folder: Any,
        data: Any,
        n_outputs: int,
        *,
        learning_rate: float,
        weight_decay: float,
        optimizer: str,
        **_: Any,
    ) -> Any:
        network = nn.Sequential(MLPFeatures(int(arch), 192), nn.Linear(192, n_outputs))
        options = {"lr": learning_rate, "weight_decay": weight_decay}
        if optimizer == "adamw":
            return network, torch.optim.AdamW(network.parameters(), **options)
        return network, torch.optim.SGD(network.parameters(), momentum=0.9, **options)

    stand_in("pytorch_lightning", LightningModule=Lightning)
    stand_in("torchmetrics", Accuracy=accuracy, ConfusionMatrix=None, MeanMetric=None)
    stand_in("wandb")
    stand_in("abstention.calibration", VectorScaling=None)
    import src

    stand_in("src.model_utils", get_model=get_model)
    stand_in("src.data_utils")
    src.plots = stand_in("src.plots.tsne_plot")
    # NumPy has dropped this name since.
    vars(np)["float"] = float
    from src.algorithm import precision_at_recall_multiple_recalls_w_labels as module

    # Only logged, and slower than the training.
    for metric in ("compute_oscr", "compute_oscpr"):
        setattr(module.TrainPAtR, metric, lambda *_: 0.0)
    module.BBE_estimate_binary = module.estimator_CM_EN = lambda *_, **__: 0.0
    return module


def _train_color(module: Any, given: Given, seed: int, **options: Any) -> Predict:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    parts = []
    for X, y in (given.source(), given.target()):
        order = torch.from_numpy(rng.permutation(len(y)))
        cut = int(0.8 * len(y))
        parts += [(X[rows], y[rows], rows) for rows in (order[:cut], order[cut:])]
    source, held_source, target, held_target = parts
    with tempfile.TemporaryDirectory() as folder:
        # "sun397" spares an estimate that is not used; all other values are those of their config.
        model = module.TrainPAtR(
            arch=str(source[0].shape[1]),
            num_source_classes=given.k,
            dataset="sun397",
            dual_learning_rate=2e-2,
            logit_multiplier=2.0,
            target_precision=0.995,
            clip=5.0,
            use_labels=True,
            target_recalls=list(RECALLS),
            device="cpu",
            mode="constrained_opt",
            pred_save_path=folder,
            save_model_path=folder + os.sep,
            **options,
        )
        network, best, kept = model.novelty_detector, 0.0, None
        for epoch in range(200):
            model.current_epoch = epoch
            network.train()
            for s, t in zip(batches(source, 64), batches(target, 64), strict=False):
                model.training_step({"source_full": s, "target_full": t}, 0)
            network.eval()
            with torch.no_grad():
                model.validation_step(held_source, 0, 0)
                model.validation_step(held_target, 0, 1)
                model.on_validation_epoch_end()
            if max(model.best_candidate_alpha) > best:
                best = max(model.best_candidate_alpha)
                kept = (
                    int(np.argmax(model.best_candidate_alpha)),
                    {k: v.clone() for k, v in network.state_dict().items()},
                )
    if kept is not None:
        network.load_state_dict(kept[1])

    def predict(X: Any) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            logits = network(torch.from_numpy(np.asarray(given.encode(X), np.float32)))
        head = logits[:, given.k :].unflatten(1, (-1, 2))[:, 0 if kept is None else kept[0]]
        novel = (head[:, 1] > head[:, 0]) & (kept is not None)
        labels = logits[:, : given.k].argmax(dim=1).masked_fill(novel, given.k)
        return labels.numpy(), (head[:, 1] - head[:, 0]).numpy()

    return predict


# -- OVANet --------------------------------------------------------------------------------------------------


def ovanet(code: Path, data: str, seed: int) -> Iterator[Row]:
    """More novel rows than known ones and the mix unchanged, as in their open set setting of Office."""
    given = Given.draw(data, seed, novel=[6, 7, 8, 9], source_fraction=(0.5, 0.5))
    found = given.score(_train_ovanet(code, given, seed), OVANet(random_state=seed))
    yield {**found, "replaced": "network, loaders, apex"}


def _train_ovanet(code: Path, given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    features = MLPFeatures(given.source()[0].shape[1], 128)
    changed = {"n_share": given.k, "n_source_private": 0, "n_total": given.k + 1}

    class Settings(dict):  # type: ignore[type-arg]
        """Keys as attributes."""

        def __getattr__(self, name: str) -> Any:
            return Settings(self[name]) if isinstance(self[name], dict) else self[name]

    def settings(stream: Any) -> Any:
        import yaml

        found = yaml.safe_load(stream)
        found["data"]["dataset"].update(changed)
        # Their backbone is pretrained and learns at a tenth of the rate; this one is not.
        found["train"] |= {"multi": 1.0, "min_step": 3000}
        found["test"]["test_interval"] = found["train"]["min_step"] + 1
        return found

    def loaders(_: Any) -> tuple[Any, Any, Any, Any]:
        target = batches(given.target(), 36)
        return batches(given.source(), 36, balanced=True), target, None, target.dataset

    amp = types.SimpleNamespace(
        initialize=lambda nets, optimisers, **_: (nets, optimisers),
        scale_loss=lambda loss, _: contextlib.nullcontext(loss),
    )
    stand_in("apex", amp=amp, optimizers=None)
    stand_in("easydict", EasyDict=Settings)
    stand_in("torchvision", models=None)
    stand_in("torchvision.transforms")
    stand_in("data_loader.get_loader", get_loader=None, get_loader_label=None)
    stand_in(
        "utils.utils", get_model_mme=lambda *_, **__: (features, 128), log_set=lambda _: "", save_model=None
    )
    load_for_cpu(code / "models" / "basenet.py", "models.basenet")
    load_for_cpu(code / "utils" / "loss.py", "utils.loss")
    load_for_cpu(code / "utils" / "lr_schedule.py", "utils.lr_schedule")
    load_for_cpu(code / "eval.py", "eval")
    defaults = load_for_cpu(code / "utils" / "defaults.py", "utils.defaults", ('"cuda"', '"cpu"'))
    defaults.get_dataloaders = loaders
    stand_in("yaml_of_theirs", load=settings)
    config = code / "configs" / "office-train-config_ODA.yaml"
    sys.argv = ["train.py", "--config", str(config), "--gpu_devices", "0"]
    with contextlib.redirect_stdout(None):
        trained = load_for_cpu(code / "train.py", "train", ("import yaml", "import yaml_of_theirs as yaml"))
    for part in (trained.G, trained.C1, trained.C2):
        part.eval()

    def predict(X: Any) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            found = trained.G(torch.from_numpy(np.asarray(given.encode(X), np.float32)))
            labels = trained.C1(found).argmax(dim=1)
            heads = trained.C2(found).view(len(labels), 2, -1).softmax(dim=1)
        novelty = heads[:, 0].gather(1, labels[:, None])[:, 0]
        return labels.masked_fill(novelty > 0.5, given.k).numpy(), novelty.numpy()

    return predict


# -- EULAC ---------------------------------------------------------------------------------------------------


def eulac(code: Path, data: str, seed: int) -> Iterator[Row]:
    """Six known classes of ten, source and target with as many rows of each, the known share given."""
    # digits has as many rows of each class already.
    mix = {} if data == "digits" else {"source_marginal": [1 / 6] * 6}
    target = {"target_marginal": [0.1] * 6 + [0.4], "test_size": 0.5}
    given = Given.draw(data, seed, novel=[6, 7, 8, 9], source_fraction=(0.6, 0.6), **target, **mix)
    original = _train_eulac(code, given, seed)
    for model in ("mlp", "kernel"):
        ours = EULAC(model=model, prior_shift=False, novel_share=0.4, random_state=seed)
        yield {
            "form": f"ours: {model}",
            **given.score(original, ours),
            "replaced": "network, rate, known share",
        }


def _train_eulac(code: Path, given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    for name in ("torch.tensor", "torchvision", "torchvision.models", "torchvision.transforms", "PIL.Image"):
        stand_in(name)
    module = load_for_cpu(code / "main.py", "main", ("'cuda'", "'cpu'"))
    # Their training passes on the known share, 0.6, but the loss uses this default, 0.9.
    module.PULoss.forward.__defaults__ = (False, 0.6)
    (X, y), (X_target, _) = given.source(), given.target()
    # All unlabelled rows count as novel; a label is a row of signs.
    classes = torch.cat([y, torch.full((len(X_target),), given.k)])
    signs = 2 * nn.functional.one_hot(classes, given.k + 1) - 1
    network = nn.Sequential(MLPFeatures(X.shape[1], 192), nn.Linear(192, given.k + 1))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=0.005)
    rows = batches((torch.cat([X, X_target]), signs), 500)
    for epoch in range(400):
        with contextlib.redirect_stdout(None):
            module.train(network, torch.device("cpu"), rows, optimiser, epoch, 10**9)
    network.eval()

    def predict(X: Any) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            proba = network(torch.from_numpy(np.asarray(given.encode(X), np.float32))).softmax(dim=1)
        return proba.argmax(dim=1).numpy(), proba[:, -1].numpy()

    return predict


# -- The kernel prior ----------------------------------------------------------------------------------------


def kernel_prior(code: Path, data: str, seed: int) -> Iterator[Row]:
    """Their preparation of their tables; the share of positives goes from 0.2, which is given, to 0.6."""
    sys.path.insert(0, str(code))
    # For the share before the shift, which is given here.
    stand_in("KM.Kernel_MPE", KM2_estimate=None)
    import pandas as pd
    from datasets import make_pu_cc_dataset
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler
    from TCPU.tcpu import TCPU
    from utils import make_binary_class, remove_collinear, sample_fixed_class_prior

    table = pd.read_csv(code / "data" / f"{data}.csv").drop(columns="BinClass").to_numpy(copy=True)
    X, y = table[:, :-1], make_binary_class(table[:, -1])
    parts = train_test_split(X[:, remove_collinear(X, 0.95)], y, test_size=0.5, random_state=seed)
    before, after = (StandardScaler().fit_transform(part) for part in parts[:2])
    before, y_before = sample_fixed_class_prior(before, parts[2], pi=0.2, sym=seed)
    positive, earlier = make_pu_cc_dataset(
        y_before, before, pi_train=0.2, n_sample=len(before), c=0.25, sym=seed
    )
    later, y_later = sample_fixed_class_prior(after, parts[3], pi=0.6, sym=seed)
    _, original = TCPU(positive, earlier, later, pi_train=0.2)
    # Theirs is scikit-learn's default width.
    for form, gamma in (("their width", 1 / later.shape[1]), ("our width", None)):
        ours = KernelPrior(prior=0.2, gamma=gamma).fit(positive, earlier, later).alpha_
        shares = {"share": np.mean(y_later), "share_original": original, "share_ours": ours}
        rounded = {name: round(float(value), 3) for name, value in shares.items()}
        yield {"form": form, **rounded, "replaced": "choice of columns"}


# -- LACForest -----------------------------------------------------------------------------------------------


def lacforest(code: Path, data: str, seed: int) -> Iterator[Row]:
    """Half of the classes novel, the mix unchanged, the novel share given, 20 trees."""
    folder = code / "LACForest"
    sys.path.insert(0, str(folder))
    stand_in("numba", jit=lambda **_: lambda function: function)
    given = _their_split(folder / "dataset" / data) if data == "segment" else _halves(data, seed)
    p, y = given.problem, given.number(given.problem.y_source)
    share = float(np.mean(given.number(p.y_target) == given.k))
    prior = types.SimpleNamespace(estimate=lambda *_: 1 - share)
    stand_in("utils.MPE.prior_estimate", KernelPriorEstimator=lambda: prior)
    sys.modules.pop("lacforest", None)
    from lacforest import LACForest as Original

    np.random.seed(seed)  # noqa: NPY002  # theirs draws from it
    original = Original(given.k, ensemble_size=20, max_features="sqrt", gamma=0.01)
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(None),
        contextlib.redirect_stderr(nowhere),
    ):
        original.fit(p.X_source, y, p.X_target)

    def predict(X: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(original.predict(X)), np.asarray(original.predict_novel_score(X))

    ours = LACForest(n_trees=20, novel_share=share, random_state=seed)
    yield {**given.score(predict, ours), "replaced": "numba, novel share"}


def _halves(data: str, seed: int) -> Given:
    return Given.draw(data, seed, novel=[5, 6, 7, 8, 9], source_fraction=(0.5, 0.5))


def _their_split(folder: Path) -> Given:
    """Return their own split, scaled to [0, 1] because their search for a cut ends at negative values."""
    from scipy.io import loadmat
    from utils.io import read_from_hdf

    table = read_from_hdf(folder / "segment.mat", ["X", "y"])
    split = loadmat(folder / "data_configuration_1.mat")
    X, y = table["X"].astype(float), table["y"].ravel().astype(int)
    X = (X - X.min(axis=0)) / np.maximum(np.ptp(X, axis=0), 1e-12)
    y = split["class_order"][0][y - y.min()].astype(int)
    rows = {side: split[side][0] for side in ("labeled", "unlabeled", "test")}
    classes = np.unique(y[rows["labeled"]])
    known = np.array([np.mean(y[rows["labeled"]] == c) for c in classes])
    problem = OSLSProblem(
        X[rows["labeled"]],
        y[rows["labeled"]],
        X[rows["unlabeled"]],
        X[rows["test"]],
        classes,
        known,
        -1,
        y_target=y[rows["unlabeled"]],
        y_test=y[rows["test"]],
        target_marginal=np.array([np.mean(y[rows["unlabeled"]] == c) for c in classes]),
    )
    return Given(problem, np.asarray)


# What each is run on.
RIVALS: dict[str, tuple[Callable[[Path, str, int], Iterator[Row]], tuple[str, ...]]] = {
    "color": (color, ("digits", "satimage")),
    "ovanet": (ovanet, ("digits", "usps")),
    "eulac": (eulac, ("digits", "usps")),
    "kernel_prior": (kernel_prior, ("Segment", "Waveform-5000", "Banknote-authentication")),
    "lacforest": (lacforest, ("segment", "digits")),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rival", choices=RIVALS)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--data", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    # The originals were written for older versions.
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    run, data_sets = RIVALS[args.rival]
    table = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else []
    for data, seed in product(args.data or data_sets, args.seeds):
        case = {"rival": args.rival, "data": data, "seed": seed}
        found = [{**case, **row} for row in run(args.code.resolve(), data, seed)]
        table = [row for row in table if any(row[key] != value for key, value in case.items())] + found
        print(*found, sep="\n", flush=True)
        args.out.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
