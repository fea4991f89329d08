"""All classes at once, or one at a time.

Algorithm 2 of the paper estimates each known class by itself, and credits it with everything the
source classifier takes for it, the novel class included. The default solves for all classes
together, from a model that has the target itself as one more class.
"""

import matplotlib.pyplot as plt
import numpy as np

from osls import PULSE

# %%
# Three known classes in the plane, and a novel one beside the third. To a classifier of the known
# classes, the novel rows look like surely the third.
MEANS = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.5], [2.0, 6.5]])
TRUTH = np.array([0.4, 0.2, 0.1, 0.3])


def draw(seed):
    """Labelled rows of the first three classes, and new rows of all four."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], 250)
    hidden = rng.choice(4, 700, p=TRUTH)
    source, target = (MEANS[labels] + rng.normal(size=(len(labels), 2)) for labels in (y, hidden))
    return source, y, target, hidden


found = {"bbe": [], "joint": []}
for seed in range(2):
    source, y, target, hidden = draw(seed)
    for shift, shares in found.items():
        model = PULSE(
            source_classifier="linear",
            discriminator="trees",
            shift=shift,
            n_folds=3,
            n_bootstrap=2,
            random_state=seed,
        )
        shares.append(model.fit(source, y, X_target=target).target_marginal_)
for shift, shares in found.items():
    print(f"{shift:6} mean share of each class {np.mean(shares, axis=0).round(2)}; in truth {TRUTH}")

# %%
# One at a time, class C takes novel rows for its own: its share comes out too large, and the re-
# weighted source is wrong for all that follows.
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
for j, (name, colour) in enumerate(zip("ABC", ("#3b7dd8", "#2a9d8f", "#7b61c9"), strict=True)):
    left.plot(*target[hidden == j].T, ".", ms=3, color=colour, label=name)
left.plot(*target[hidden == 3].T, ".", ms=3, color="#d2691e", label="novel")
left.set_title("the new rows, coloured by the truth")
left.legend(markerscale=4, loc="lower right")
place = np.arange(4)
for offset, (shift, label, colour) in enumerate(
    (("bbe", "one at a time", "#8a96a5"), ("joint", "all at once", "#3b7dd8"))
):
    right.bar(place + 0.36 * offset - 0.18, np.mean(found[shift], axis=0), 0.34, color=colour, label=label)
right.plot(place, TRUTH, "_", color="#c2185b", ms=38, mew=2, label="truth")
right.set_xticks(place, ["A", "B", "C", "novel"])
right.set_ylabel("share in the new rows")
right.set_ylim(0, 0.6)
right.legend(ncols=3, loc="upper center")
plt.show()
