"""Do the intervals hold the truth?

A 95% interval should hold the true share in 95 of 100 repetitions. Here are sixty of them.
"""

import matplotlib.pyplot as plt
import numpy as np

from osls.mixture import BBE
from osls.theory import bbe_interval

# %%
# The same problem sixty times: 600 positives, and 600 unlabelled rows of which 70% are positive.
TRUE_SHARE = 0.7
rng = np.random.default_rng(0)
estimates, intervals, bounds = [], [], []
for _ in range(60):
    positive = rng.normal(2, 1, 600)
    unlabeled = np.where(rng.random(600) < TRUE_SHARE, rng.normal(2, 1, 600), rng.normal(-2, 1, 600))
    bbe = BBE().fit(positive, unlabeled)
    estimates.append(bbe.alpha_)
    intervals.append(bbe.interval(0.95, n_boot=100))
    bounds.append(bbe_interval(positive, unlabeled, delta=0.05, pure_bin=0.5))
intervals, bounds = np.array(intervals), np.array(bounds)
covered = (intervals[:, 0] <= TRUE_SHARE) & (intervals[:, 1] >= TRUE_SHARE)
print(f"bootstrap: holds the truth in {covered.sum()} of 60, mean width {np.ptp(intervals, 1).mean():.3f}")
within = (bounds[:, 0] <= TRUE_SHARE) & (bounds[:, 1] >= TRUE_SHARE)
print(f"bound:     holds the truth in {within.sum()} of 60, mean width {np.ptp(bounds, 1).mean():.3f}")

# %%
# The bootstrap interval (dark) is what to report. The bound (pale) holds for every sample size, given
# a pure top bin, and pays for that with its width.
figure, axes = plt.subplots(figsize=(9, 3.4))
place = np.arange(60)
axes.vlines(place, *bounds.T, color="#8a96a5", alpha=0.35, lw=5, label="bound")
colours = np.where(covered, "#3b7dd8", "#c2185b")
axes.vlines(place, *intervals.T, color=colours, lw=2, label="95% interval (red: misses)")
axes.plot(place, estimates, ".", color="#d2691e", label="estimate")
axes.axhline(TRUE_SHARE, color="#445566", lw=1)
axes.set_xlabel("repetition")
axes.set_ylabel("share of positives")
axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
plt.show()
