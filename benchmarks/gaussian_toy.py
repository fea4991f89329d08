r"""The paper's overparameterised Gaussian toy: why CVIR, and why after a warm start.

    python benchmarks/gaussian_toy.py [SETTING ...]

d = 1000, 250 positives, 250 unlabelled rows of which half are positive, margin 0.05, a linear model. Draws
the paper's two figures: accuracy on fresh positives against negatives, and the share of the unlabelled
positives that the keep rule rejects. Writes benchmarks/results/gaussian_toy.{json,svg}.

The paper prints x = 0.05 theta + z, z standard normal, and a model without intercept. There the margin is
nothing beside |z| = 32. The authors' notebook projects z on the unit sphere before it adds the margin, gives
the linear layer an intercept, takes full-batch steps of rate 0.1 with momentum 0.9, and minimises uPU and
nnPU with the sigmoid surrogate. That is "sphere" here, and the figure. The other settings change one thing
at a time, down to the toy as printed, so that one can see what each finding of the paper rests on. As printed
all methods learn slowly; that setting is trained ten times as long, until no curve rises any more.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from osls.pu import losses
from osls.training.trainer import seeded

RESULTS = Path(__file__).parent / "results"
WARM, EVERY = 200, 10
# By method: accuracy and correct rejections, (measurements, seeds) each.
Curves = dict[str, tuple[np.ndarray, np.ndarray]]
NAMES = {
    "pvu": "PvU",
    "upu": "uPU",
    "nnpu": "nnPU",
    "cvir": "CVIR (random)",
    "cvir-warm": "CVIR (PvU)",
}


@dataclass(frozen=True)
class Setting:
    """One reading of the paper's toy; ``seeds`` problems are trained side by side."""

    on_sphere: bool
    intercept: bool
    surrogate: losses.Surrogate
    rate: float
    momentum: float = 0.9
    epochs: int = 2000
    seeds: int = 8
    d: int = 1000
    n: int = 250
    m: int = 250
    alpha: float = 0.5
    margin: float = 0.05
    n_valid: int = 1000


SETTINGS = {
    "sphere": Setting(on_sphere=True, intercept=True, surrogate="sigmoid", rate=0.1),
    "sphere, logistic": Setting(on_sphere=True, intercept=True, surrogate="logistic", rate=0.1),
    "sphere, no intercept": Setting(on_sphere=True, intercept=False, surrogate="logistic", rate=0.1),
    # The same rate relative to the squared length of a row, 1000 instead of 1.
    "printed": Setting(
        on_sphere=False, intercept=False, surrogate="logistic", rate=0.1 / 1000, epochs=20_000
    ),
}


@dataclass(frozen=True)
class Problem:
    """Rows by their inner products: gradient descent never leaves w_0 + span(rows), so w = w_0 + X' c."""

    gram: Tensor
    valid_gram: Tensor
    start: Tensor
    valid_start: Tensor


def draw_rows(s: Setting, count: int, sign: float) -> Tensor:
    """Half a Gaussian on one side of the first axis, which is the separator, moved away by the margin."""
    z = torch.randn(s.seeds, count, s.d)
    z[..., 0] = sign * z[..., 0].abs()
    if s.on_sphere:
        z /= z.norm(dim=2, keepdim=True)
    z[..., 0] += sign * s.margin
    return torch.cat([z, torch.ones(s.seeds, count, 1)], dim=2) if s.intercept else z


def draw_problem(s: Setting) -> Problem:
    hidden = round(s.alpha * s.m)
    parts = [draw_rows(s, s.n, 1), draw_rows(s, hidden, 1), draw_rows(s, s.m - hidden, -1)]
    rows = torch.cat(parts, dim=1)
    valid = torch.cat([draw_rows(s, s.n_valid, 1), draw_rows(s, s.n_valid, -1)], dim=1)
    # torch.nn.Linear's initialisation.
    w0 = (2 * torch.rand(s.seeds, rows.shape[2], 1) - 1) / s.d**0.5
    span = rows.transpose(1, 2)
    return Problem(rows @ span, valid @ span, rows @ w0, valid @ w0)


def loss_of(s: Setting, method: str, positive: Tensor, unlabeled: Tensor) -> Tensor:
    if method == "pvu":
        return losses.pvu(positive, unlabeled)
    if method == "upu":
        return losses.upu(positive, unlabeled, s.alpha, s.surrogate)
    if method == "nnpu":
        return losses.nnpu(positive, unlabeled, s.alpha, s.surrogate)
    return losses.cvir(positive, losses.keep_lowest(unlabeled, 1 - s.alpha), s.alpha)


def measure(s: Setting, problem: Problem, c: Tensor, unlabeled: Tensor) -> tuple[Tensor, Tensor]:
    """Accuracy on fresh rows, and the share of the unlabelled positives that the keep rule rejects."""
    logits = (problem.valid_start + torch.bmm(problem.valid_gram, c))[..., 0]
    is_positive = torch.arange(2 * s.n_valid) < s.n_valid
    accuracy = ((logits > 0) == is_positive).float().mean(dim=1)
    bar = losses.keep_lowest(unlabeled, 1 - s.alpha).amax(dim=1, keepdim=True)
    rejected = (unlabeled[:, : round(s.alpha * s.m)] > bar).float().mean(dim=1)
    return accuracy, rejected


def train(s: Setting, problem: Problem, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Curves of accuracy and of correct rejections, (epochs / EVERY, seeds) each."""
    c = torch.zeros(s.seeds, s.n + s.m, 1)
    velocity = torch.zeros_like(c)
    curves = []
    for epoch in range(s.epochs + 1):
        logits = (problem.start + torch.bmm(problem.gram, c))[..., 0].requires_grad_()
        positive, unlabeled = logits[:, : s.n], logits[:, s.n :]
        if epoch % EVERY == 0:
            curves.append(torch.stack(measure(s, problem, c, unlabeled.detach())))
        now = method if method != "cvir-warm" else "pvu" if epoch < WARM else "cvir"
        (slope,) = torch.autograd.grad(loss_of(s, now, positive, unlabeled).sum(), logits)
        velocity = s.momentum * velocity + slope[..., None]
        c = c - s.rate * velocity
    accuracy, rejected = torch.stack(curves).permute(1, 0, 2).numpy()
    return accuracy, rejected


def run(s: Setting, methods: Iterable[str] = NAMES, seed: int = 0) -> Curves:
    with seeded(seed):
        problem = draw_problem(s)
        return {method: train(s, problem, method) for method in methods}


def summarise(curves: Curves) -> dict[str, dict[str, float]]:
    """Means over seeds: at the end, at the best epoch of the mean curve, and the correct rejections."""
    table = {}
    for method, (accuracy, rejected) in curves.items():
        mean = accuracy.mean(axis=1)
        table[method] = {
            "last": mean[-1],
            "last_std": accuracy[-1].std(ddof=1),
            "best": mean.max(),
            "best_epoch": int(mean.argmax()) * EVERY,
            "rejected": rejected[-1].mean(),
        }
    return {m: {k: round(float(v), 4) for k, v in row.items()} for m, row in table.items()}


def paired(higher: np.ndarray, lower: np.ndarray) -> dict[str, float | bool]:
    """Difference on the same problems, its standard error, and whether it exceeds two of them."""
    difference = higher - lower
    mean, error = difference.mean(), difference.std(ddof=1) / len(difference) ** 0.5
    return {
        "mean": round(float(mean), 4),
        "standard_error": round(float(error), 4),
        "problems": len(difference),
        "holds": bool(mean > 2 * error),
    }


def claims(curves: Curves, duel: Curves) -> dict[str, dict[str, float | bool]]:
    """What the paper says of its figures; ``duel`` has more problems for its closest comparison."""
    last = {method: accuracy[-1] for method, (accuracy, _) in curves.items()}
    best = {m: accuracy[accuracy.mean(axis=1).argmax()] for m, (accuracy, _) in curves.items()}
    (warm, warm_rejects), (cold, cold_rejects) = duel["cvir-warm"], duel["cvir"]
    return {
        "CVIR (PvU) ends above CVIR (random)": paired(warm[-1], cold[-1]),
        "CVIR (PvU) rejects more positives": paired(warm_rejects[-1], cold_rejects[-1]),
        "CVIR (random) ends above the best PvU": paired(last["cvir"], best["pvu"]),
        "CVIR (PvU) ends above the best PvU": paired(last["cvir-warm"], best["pvu"]),
        **{f"{NAMES[m]} falls late in training": paired(best[m], last[m]) for m in ("pvu", "upu", "nnpu")},
    }


def draw(curves: Curves, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "osls"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    titles = ("accuracy, fresh positives against negatives", "unlabelled positives correctly rejected")
    for panel, axis in enumerate(axes):
        for i, (method, curve) in enumerate(curves.items()):
            if panel == 1 and not method.startswith("cvir"):
                continue
            # A few hundred points draw the same line as thousands.
            every = max(1, len(curve[panel]) // 200)
            thin = curve[panel][::every]
            mean, band = thin.mean(axis=1), thin.std(axis=1, ddof=1)
            epoch = np.arange(len(mean)) * EVERY * every
            axis.plot(epoch, mean, color=f"C{i}", label=NAMES[method])
            axis.fill_between(epoch, mean - band, mean + band, color=f"C{i}", alpha=0.15, linewidth=0)
        axis.axvline(WARM, color="grey", linewidth=0.8, linestyle=":")
        axis.set(title=titles[panel], xlabel="epoch")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    started, path = time.perf_counter(), RESULTS / "gaussian_toy.json"
    chosen = sys.argv[1:] or list(SETTINGS)
    # Settings that are not run now keep their results.
    record = json.loads(path.read_text()) if path.exists() and sys.argv[1:] else {}
    for name, setting in ((name, SETTINGS[name]) for name in chosen):
        shown = setting if name == "sphere" else replace(setting, seeds=3)
        curves = run(shown)
        # The two CVIRs differ by less than eight problems can show: 32 fresh ones decide.
        duel = run(replace(setting, seeds=32), ("cvir", "cvir-warm"), seed=1) if name == "sphere" else curves
        table, verdicts = summarise(curves), claims(curves, duel)
        record[name] = {"setting": asdict(shown), "results": table, "claims": verdicts}
        print(f"{name}: {shown.seeds} seeds, {time.perf_counter() - started:.0f} s so far", flush=True)
        for method, row in table.items():
            print(
                f"  {NAMES[method]:14} ends at {row['last']:.3f} ± {row['last_std']:.3f}, "
                f"best {row['best']:.3f} at epoch {row['best_epoch']:.0f}, rejects {row['rejected']:.2f}"
            )
        for claim, v in verdicts.items():
            print(
                f"  {'yes' if v['holds'] else 'NO ':3} {claim}: {v['mean']:+.4f} ± {v['standard_error']:.4f} "
                f"(s.e., {v['problems']} problems)",
                flush=True,
            )
        RESULTS.mkdir(exist_ok=True)
        if name in ("sphere", "printed"):
            draw(curves, RESULTS / ("gaussian_toy.svg" if name == "sphere" else "gaussian_toy_printed.svg"))
    path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
