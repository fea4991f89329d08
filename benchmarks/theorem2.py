r"""Theorem 2 in population size: CVIR finds the separator of two half Gaussians.

    python benchmarks/theorem2.py

x = gamma theta + z given theta'z >= 0 for positives, mirrored for negatives; d = 10, 100,000 positives and
100,000 unlabelled rows, alpha known. A linear model without intercept is trained by the paper's two steps:
keep the 1 - alpha of the unlabelled rows with the least loss, take a gradient step on the CVIR loss.

"printed" is the theorem: any start whose loss is below log 2 (here at 20, 50 and 80 degrees from the
separator), steps of 1/2, no warm start, 20,000 rows a side; the loss must never rise and the direction must
be found. The other rows start from domain discrimination and take larger steps, as one would in practice.
Accuracy is on fresh rows. Writes benchmarks/results/theorem2.json.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from osls.pu import losses
from osls.training.trainer import seeded

RESULTS = Path(__file__).parent / "results"
D, ROWS, MARGIN = 10, 200_000, 0.05
WARM, STEPS, RATE = 50, 600, 2.0


def draw(count: int, sign: float, separator: Tensor) -> Tensor:
    z = torch.randn(count, D)
    along = z @ separator
    # Reflect the rows on the wrong side: that is the Gaussian given the right side.
    z += torch.outer(sign * along.abs() - along, separator)
    return z + sign * MARGIN * separator


def cosine(theta: Tensor, separator: Tensor) -> float:
    return float(theta @ separator / theta.norm())


def run(alpha: float, seed: int = 0) -> dict[str, float]:
    started = time.perf_counter()
    with seeded(seed):
        separator = torch.nn.functional.normalize(torch.randn(D), dim=0)
        half = ROWS // 2
        hidden = round(alpha * half)
        positive = draw(half, 1, separator)
        unlabeled = torch.cat([draw(hidden, 1, separator), draw(half - hidden, -1, separator)])
        fresh = torch.cat([draw(half, 1, separator), draw(half, -1, separator)])
        theta = (0.1 * torch.randn(D)).requires_grad_()
    is_positive = torch.arange(2 * half) < half
    row: dict[str, float] = {"alpha": alpha}
    for step in range(WARM + STEPS):
        if step == WARM:
            row["cosine_warm"] = cosine(theta.detach(), separator)
        z_positive, z_unlabeled = positive @ theta, unlabeled @ theta
        loss = (
            losses.pvu(z_positive, z_unlabeled)
            if step < WARM
            else losses.cvir(z_positive, losses.keep_lowest(z_unlabeled, 1 - alpha), alpha)
        )
        (slope,) = torch.autograd.grad(loss, theta)
        theta = (theta - RATE * slope).detach().requires_grad_()
    found = theta.detach()
    row["cosine"] = cosine(found, separator)
    row["accuracy"] = float(((fresh @ found > 0) == is_positive).float().mean())
    row["loss"] = float(loss.detach())
    row["seconds"] = round(time.perf_counter() - started, 1)
    return row


def run_as_printed(
    alpha: float, angle: float, *, rows: int = 40_000, steps: int = 2000, rate: float = 0.5, seed: int = 0
) -> dict[str, float | bool]:
    """The theorem's two steps from a start ``angle`` degrees away from the separator."""
    with seeded(seed):
        separator = torch.nn.functional.normalize(torch.randn(D), dim=0)
        across = torch.randn(D)
        across = torch.nn.functional.normalize(across - (across @ separator) * separator, dim=0)
        half = rows // 2
        hidden = round(alpha * half)
        positive = draw(half, 1, separator)
        unlabeled = torch.cat([draw(hidden, 1, separator), draw(half - hidden, -1, separator)])
    turn = torch.deg2rad(torch.tensor(angle))
    # Short enough that the loss is below log 2 also where many rows are on the wrong side.
    theta = (0.1 * (turn.cos() * separator + turn.sin() * across)).requires_grad_()
    seen = []
    for _ in range(steps):
        kept = losses.keep_lowest(unlabeled @ theta, 1 - alpha)
        loss = losses.cvir(positive @ theta, kept, alpha)
        (slope,) = torch.autograd.grad(loss, theta)
        theta = (theta - rate * slope).detach().requires_grad_()
        seen.append(float(loss.detach()))
    return {
        "alpha": alpha,
        "angle": angle,
        "first_loss": round(seen[0], 5),
        "last_loss": round(seen[-1], 5),
        # float32 rounds the mean of 100,000 losses.
        "monotone": all(after <= before + 1e-6 for before, after in pairwise(seen)),
        "cosine": round(cosine(theta.detach(), separator), 6),
    }


def main() -> None:
    print(f"d = {D}, {ROWS:,} rows, margin {MARGIN}, {WARM} PvU and {STEPS} CVIR steps of rate {RATE}")
    print("alpha  cosine after PvU  cosine    accuracy  seconds")
    rows = []
    for alpha in (0.3, 0.5, 0.7):
        row = run(alpha)
        rows.append(row)
        print(
            f"{alpha:<6} {row['cosine_warm']:<17.5f} {row['cosine']:<9.6f} {row['accuracy']:<9.5f} "
            f"{row['seconds']}",
            flush=True,
        )
    printed = [run_as_printed(alpha, angle) for alpha in (0.3, 0.5, 0.7) for angle in (20.0, 50.0, 80.0)]
    for row in printed:
        print(row, flush=True)
    RESULTS.mkdir(exist_ok=True)
    setting = {"d": D, "rows": ROWS, "margin": MARGIN, "warm": WARM, "steps": STEPS, "rate": RATE}
    (RESULTS / "theorem2.json").write_text(
        json.dumps({**setting, "rows_by_alpha": rows, "printed": printed}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
