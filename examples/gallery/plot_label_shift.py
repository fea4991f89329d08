"""Nothing new, only another mix.

If there is no novel class the problem is label shift, and simpler tools do. `osls.shift` has three;
each needs only the outputs of a classifier.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from osls.shift import BBSE, MLLS, RLLS

# %%
# Three classes that overlap. They were equally common in the labels; now the first is common and the
# third is rare.
MEANS = np.array([[0.0, 0.0], [1.6, 0.0], [0.8, 1.4]])
TRUTH = np.array([0.6, 0.3, 0.1])
NAMES = ("A", "B", "C")


def draw(mix, rows, rng):
    """Rows and their classes."""
    y = rng.choice(3, rows, p=mix)
    return MEANS[y] + rng.normal(size=(rows, 2)), y


# %%
# Ten draws. The probabilities of the labelled rows are out of fold, as those of the new rows are anyway.
errors = {"counting predictions": [], "BBSE": [], "RLLS": [], "MLLS": []}
for seed in range(10):
    rng = np.random.default_rng(seed)
    X, y = draw(np.full(3, 1 / 3), 1500, rng)
    X_new, hidden = draw(TRUTH, 1500, rng)
    classifier = LogisticRegression()
    proba = cross_val_predict(classifier, X, y, cv=5, method="predict_proba")
    proba_new = classifier.fit(X, y).predict_proba(X_new)
    truth = np.bincount(hidden, minlength=3) / len(hidden)
    counted = np.bincount(proba_new.argmax(axis=1), minlength=3) / len(hidden)
    errors["counting predictions"].append(counted - truth)
    for estimator in (BBSE(), RLLS(), MLLS()):
        found = estimator.fit(proba, y, proba_new).target_marginal_
        errors[type(estimator).__name__].append(found - truth)
for name, found in errors.items():
    print(f"{name:22} mean absolute error of a share {np.abs(found).mean():.4f}")

# %%
# Counting what the classifier says is wrong in one direction: it still believes in the old mix.
# `correct` of each estimator also re-weights the classifier's own answers.
figure, axes = plt.subplots()
for offset, (name, found) in enumerate(errors.items()):
    colour = ["#8a96a5", "#2a9d8f", "#7b61c9", "#3b7dd8"][offset]
    for j in range(3):
        place = np.full(10, j + 0.18 * offset - 0.27)
        axes.plot(place, np.array(found)[:, j], "o", ms=4, color=colour, label=name if j == 0 else None)
axes.axhline(0, color="#445566", lw=0.8)
axes.set_xticks(range(3), [f"class {name}" for name in NAMES])
axes.set_ylabel("estimate minus truth")
axes.legend()
plt.show()
