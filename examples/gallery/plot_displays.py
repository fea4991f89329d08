"""Plots of a fit.

Displays in the manner of scikit-learn: the mix before and now, how probable it is for each row that
it is novel, and the checks. Each has `from_estimator`, and `from_answer` for what `osls.adapt` returns.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from osls import PULSE
from osls.app.displays import MixDisplay, NoveltyDisplay, TrustDisplay
from osls.datasets import simulate_osls

# %%
# Digits, of which 8 and 9 have no labels.
X, y = load_digits(return_X_y=True)
problem = simulate_osls(X, y, novel=[8, 9], random_state=0)
model = PULSE(source_classifier="trees", discriminator="trees", n_bootstrap=20, random_state=0)
model.fit(problem.X_source, problem.y_source, X_target=problem.X_target)

# %%
# The mix, with intervals.
MixDisplay.from_estimator(model)
plt.show()

# %%
# The target's probabilities come from models that did not see the row. Those of the source do not, so
# they look better than they are.
NoveltyDisplay.from_estimator(model, problem.X_source)
plt.show()

# %%
# The checks behind the verdict.
TrustDisplay.from_estimator(model)
plt.tight_layout()
plt.show()
