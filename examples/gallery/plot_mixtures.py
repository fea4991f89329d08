"""Four estimators of one share.

`osls.mixture` holds several answers to the same question: how much of this unlabelled sample is
positive? They differ when negatives hide among the best-scoring positives.
"""

import matplotlib.pyplot as plt
import numpy as np

from osls.mixture import BBE, DEDPUL, ElkanNoto, Regroup

# %%
# Scores are the true probabilities of "labelled positive, not unlabelled", for two Gaussian classes
# that lie apart (left) or overlap (right). BBE and DEDPUL are close to the truth where some scores
# belong to positives alone, and too high for small shares where none do. Elkan and Noto's ratio is
# higher throughout. Regrouping lowers an estimate, too high or not: it is for known overlap.
ESTIMATORS = {
    "BBE": BBE(),
    "DEDPUL": DEDPUL(),
    "Elkan-Noto": ElkanNoto(),
    "ReGroup": Regroup(),
}
COLOURS = ["#3b7dd8", "#2a9d8f", "#d2691e", "#7b61c9"]
SHARES = (0.2, 0.4, 0.6, 0.8)


def scores(share, distance, rng):
    """Scores of 1,000 positives and of 1,000 unlabelled rows."""

    def score(x):
        p, n = np.exp(-0.5 * x**2), np.exp(-0.5 * (x + distance) ** 2)
        return p / (p + share * p + (1 - share) * n)

    unlabeled = rng.normal(np.where(rng.random(1000) < share, 0.0, -distance))
    return score(rng.normal(0, 1, 1000)), score(unlabeled)


figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True)
for each, distance in zip(axes, (4.0, 1.5), strict=True):
    for (name, estimator), colour in zip(ESTIMATORS.items(), COLOURS, strict=True):
        means = []
        for share in SHARES:
            rng = np.random.default_rng(0)
            means.append(np.mean([estimator.fit(*scores(share, distance, rng)).alpha_ for _ in range(5)]))
        each.plot(SHARES, np.array(means) - SHARES, "o-", ms=4, color=colour, label=name)
        print(f"distance {distance}: {name:11} {np.round(means, 3)}")
    each.axhline(0, color="#445566", lw=0.8)
    each.set_title(f"distance of the means: {distance}")
    each.set_xlabel("true share of positives")
axes[0].set_ylabel("estimate minus truth")
axes[0].legend()
plt.show()
