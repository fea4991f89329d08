"""Your own network.

A function that makes a torch network is all that PULSE needs. It is called once a fold, with the
shape of a row and the number of outputs.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from torch import nn

from osls import PULSE
from osls.datasets import simulate_osls

# %%
# A small convolutional network. `input_shape` is (channels, height, width) for images and (features,)
# for tables.


def small_convnet(input_shape, n_outputs):
    """Two convolutions and a linear layer."""
    channels, height, width = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * (height // 2) * (width // 2), n_outputs),
    )


# %%
# The digits as images; nobody labelled the sixes. `max_steps` and `n_folds` are small here to be quick.
X, y = load_digits(n_class=7, return_X_y=True)
images = (X / 16).reshape(-1, 1, 8, 8).astype(np.float32)
problem = simulate_osls(images, y, novel=[6], random_state=0)
model = PULSE(
    source_classifier=small_convnet,
    discriminator=small_convnet,
    n_folds=3,
    rounds=2,
    max_steps=150,
    random_state=0,
)
model.fit(problem.X_source, problem.y_source, X_target=problem.X_target)
print(f"novel share {model.novel_prevalence_:.3f}, in truth {problem.target_marginal[-1]:.3f}")
print(f"accuracy on rows it has not seen: {model.score(problem.X_test, problem.y_test):.3f}")

# %%
# The rows that look newest.
newest = np.argsort(-model.target_proba_[:, -1], kind="stable")[:24]
figure, axes = plt.subplots(3, 8, figsize=(7.5, 3))
for each, row in zip(axes.flat, newest, strict=True):
    each.imshow(problem.X_target[row, 0], cmap="Greys")
    each.set_axis_off()
plt.show()
