"""What CVIR does.

A model that tells labelled rows from new rows is not a model of what is new: most new rows are of
known classes, and it is punished for saying so. CVIR trains against those new rows only that look
least like the known ones.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import cross_val_predict

from osls.pu import PUClassifier

# %%
# Positives (known) are one cloud. Of the unlabelled rows 60% come from it, and 40% are new.
rng = np.random.default_rng(0)
positive = rng.normal(0, 1, (500, 2))
known = rng.random(600) < 0.6
unlabeled = np.where(known[:, None], rng.normal(0, 1, (600, 2)), rng.normal([2.6, 2.2], 0.8, (600, 2)))

# %%
# First the plain model of positive against unlabelled, then CVIR. All figures are of held-out rows.
rows = np.vstack([positive, unlabeled])
labelled = np.repeat([1, 0], [len(positive), len(unlabeled)])
plain = ExtraTreesClassifier(200, min_samples_leaf=10, random_state=0)
held_out = cross_val_predict(plain, rows, labelled, cv=5, method="predict_proba")[len(positive) :, 1]
plain.fit(rows, labelled)
model = PUClassifier(
    "cvir", discriminator=ExtraTreesClassifier(200, min_samples_leaf=10), random_state=0
).fit(positive, unlabeled)
print(f"share of known rows among the unlabelled: {model.alpha_:.2f}; in truth {known.mean():.2f}")
for entry in model.history_:
    if entry["step"] == "cvir":
        print(
            f"round {entry['round']}: {entry['kept']} rows kept as new, {entry['changed']:.1%} changed sides"
        )
answers = {
    "positive against unlabelled": held_out,
    "CVIR": model.unlabeled_proba_[:, 1],
}
for name, score in answers.items():
    print(f"{name:28} {np.mean((score > 0.5) == known):.1%} of the unlabelled rows right")

# %%
# The probability of being known, over the plane. White is one half.
side = np.linspace(-3.5, 5.5, 120)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.9), sharey=True)
for each, name, machine in zip(axes, answers, (plain, model), strict=True):
    surface = machine.predict_proba(grid)[:, 1].reshape(120, 120)
    each.contourf(side, side, surface, np.linspace(0, 1, 11), cmap="RdBu", alpha=0.75)
    each.plot(*unlabeled[known].T, ".", ms=2.5, color="#1f4e9c")
    each.plot(*unlabeled[~known].T, ".", ms=2.5, color="#8a2f00")
    each.set_title(name)
plt.show()
