"""Handwritten digits, two of which nobody labelled.

The whole of it in one picture: how common each digit was in the labels, how common it is in the new
data, and how much of the new data is neither.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from osls import PULSE
from osls.datasets import simulate_osls

# %%
# The digits 8 and 9 get no labels. Of each other digit a random 20 to 100% is labelled, the rest is
# new data. So the class mix changes, and something new appears.
X, y = load_digits(return_X_y=True)
problem = simulate_osls(X, y, novel=[8, 9], random_state=0)
print(f"{len(problem.y_source)} labelled rows, {len(problem.y_target)} new rows without labels")

# %%
# Trees in both roles keep this quick. The default, a network and trees blended, is a little more accurate.
model = PULSE(source_classifier="trees", discriminator="trees", random_state=0)
model.fit(problem.X_source, problem.y_source, X_target=problem.X_target)
low, high = model.novel_interval_
print(f"new: {model.novel_prevalence_:.1%} ({low:.1%} to {high:.1%})")
print(f"in truth: {problem.target_marginal[-1]:.1%}")
print(f"p-value of 'nothing is new': {model.novelty_pvalue_:.4f}")
print(f"verdict: {model.diagnostics_.verdict}")
print(f"accuracy on the new rows: {np.mean(model.target_labels_ == problem.y_target):.3f}")

# %%
# Bars are estimates with their 95% intervals, ticks the truth, which the model has not seen.
names = [*map(str, problem.classes), "novel"]
place = np.arange(len(names))
before = np.append(problem.source_marginal, 0.0)
now = model.target_marginal_
error = np.abs(model.marginal_interval_.T - now)

figure, axes = plt.subplots()
axes.bar(place - 0.2, before, 0.36, color="#8a96a5", label="in the labels")
colours = ["#3b7dd8"] * (len(names) - 1) + ["#d2691e"]
axes.bar(place + 0.2, now, 0.36, color=colours, yerr=error, ecolor="#8a96a5", label="in the new data")
axes.plot(place + 0.2, problem.target_marginal, "_", color="#c2185b", ms=16, mew=2, label="truth")
axes.set_xticks(place, names)
axes.set_ylabel("share")
axes.legend()
plt.show()
