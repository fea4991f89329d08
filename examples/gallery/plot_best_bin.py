"""The best bin.

How BBE finds the share of positives in an unlabelled sample: it looks for the top bin of scores that holds
(almost) only positives, and compares how much of either sample falls into it.
"""

import matplotlib.pyplot as plt
import numpy as np

from osls.mixture import BBE

# %%
# Positives score high, negatives low, with some overlap. Forty percent of the unlabelled rows are positive.
rng = np.random.default_rng(0)
positive = rng.beta(5, 2, 2000)
unlabeled = np.concatenate([rng.beta(5, 2, 800), rng.beta(2, 6, 1200)])
bbe = BBE().fit(positive, unlabeled)
low, high = bbe.interval_
print(f"share of positives: {bbe.alpha_:.3f}, 95% interval {low:.3f} to {high:.3f}; in truth 0.4")
print(f"the top bin starts at {bbe.threshold_:.3f}")

# %%
# Left: the scores, and where the top bin starts. Right: the ratio of the two shares above a
# threshold. With a low threshold negatives get in and the ratio is too high. With a high one there
# are few rows and it is noise. The dashed line adds what sampling may have done; its minimum picks
# the threshold.
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
bins = np.linspace(0, 1, 41)
left.hist(unlabeled, bins, density=True, color="#8a96a5", alpha=0.6, label="unlabelled")
left.hist(positive, bins, density=True, histtype="step", color="#3b7dd8", lw=2, label="positive")
left.axvspan(bbe.threshold_, 1, color="#d2691e", alpha=0.18, label="top bin")
left.set_xlabel("score")
left.set_yticks([])
left.legend()

curve = bbe.curve_
keep = curve.positive_share > 0.01
right.plot(curve.threshold[keep], curve.ratio[keep], color="#3b7dd8", label="ratio of the shares")
right.plot(curve.threshold[keep], curve.upper_bound[keep], "--", color="#8a96a5", label="upper bound")
right.axhline(0.4, color="#c2185b", lw=1, label="truth")
right.plot(bbe.threshold_, bbe.alpha_, "o", color="#d2691e", label="estimate")
right.set_ylim(0, 1.2)
right.set_xlabel("threshold")
right.legend()
plt.show()
