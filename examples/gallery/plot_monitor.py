"""Watching a stream.

A fitted model, a batch a day: the novel share of each with its interval, and an alarm when
something has moved. The chance of any false alarm over the whole stream, however long, is about 5%
at most.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from osls import PULSE
from osls.app.displays import TimelineDisplay
from osls.datasets import simulate_osls
from osls.monitor import Monitor

# %%
# The model is fitted to new rows among which the digit 9 has no label. Part of the digits is kept for
# the stream.
X, y = load_digits(return_X_y=True)
problem = simulate_osls(X, y, novel=[9], test_size=0.5, random_state=0)
model = PULSE(source_classifier="trees", discriminator="trees", n_bootstrap=20, random_state=0)
model.fit(problem.X_source, problem.y_source, X_target=problem.X_target)
print(f"novel share at the fit: {model.novel_prevalence_:.3f}")

# %%
# Twelve days as at the fit, then the novel digit grows more common day by day.
rng = np.random.default_rng(1)
names = [str(name) for name in model.classes_]
monitor = Monitor(
    model.target_marginal_,
    [*names[:-1], "novel"],
    reference_proba=model.target_proba_,
    reference_interval=model.marginal_interval_,
)
weight = np.append(problem.target_marginal[:-1], 0.0)
truth = []
for day in range(24):
    share = problem.target_marginal[-1] + max(0, day - 11) * 0.03
    mix = np.append(weight[:-1] / weight[:-1].sum() * (1 - share), share)
    labels = rng.choice(len(names), 300, p=mix)
    rows = [rng.choice(np.flatnonzero(problem.y_test == model.classes_[j])) for j in labels]
    report = monitor.update(f"day {day}", model.predict_proba(problem.X_test[rows]))
    truth.append(np.mean(labels == len(names) - 1))
    for alarm in report.alarms:
        print(
            f"day {day}: {alarm.class_name} moved from {alarm.before:.2f} to {alarm.now:.2f} ({alarm.scope})"
        )

# %%
# Dots are estimates, the line is what was drawn. Orange days raised an alarm.
figure, axes = plt.subplots(figsize=(9, 3.4))
TimelineDisplay.from_monitor(monitor, ax=axes)
axes.plot(truth, color="#c2185b", lw=1, label="truth")
axes.legend()
plt.show()
