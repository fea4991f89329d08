"""How small a novelty can be found?

The test of "nothing is new" has a level, a power, and a share that it is likely to find. The last
is reported with every fit as `detectable_share_`, so that "nothing found" can be read for what it
is.
"""

import matplotlib.pyplot as plt
import numpy as np

from osls.inference import novelty_test

# %%
# Domain scores of held-out rows: known rows score like the labelled ones, novel rows lower. The test
# is repeated on twenty draws for each share of novel rows and each size of sample.
SHARES = np.array([0.0, 0.03, 0.06, 0.1, 0.15])
LEVEL = 0.05


def rejections(rows, share, draws=20):
    """How often "nothing is new" is rejected, and the share that should be found with a power of 80%."""
    count, detectable = 0, 0.0
    for seed in range(draws):
        rng = np.random.default_rng([seed, rows])
        novel = rng.random(rows) < share
        target = np.where(novel, rng.beta(1, 12, rows), rng.beta(6, 2, rows))
        test = novelty_test(rng.beta(6, 2, rows), target, level=LEVEL)
        count += test.pvalue <= LEVEL
        detectable = test.detectable_share
    return count / draws, detectable


# %%
# At a share of zero the curves stay near the level, the red line. The dotted lines are
# `detectable_share`. It supposes that nine in ten novel rows score below nineteen in twenty known
# ones; the novel rows here score lower still, so they are found sooner.
figure, axes = plt.subplots()
for rows, colour in ((200, "#3b7dd8"), (600, "#d2691e")):
    power = [rejections(rows, share) for share in SHARES]
    axes.plot(SHARES, [p for p, _ in power], "o-", color=colour, label=f"{rows} rows a side")
    axes.axvline(power[-1][1], color=colour, lw=1, ls=":")
    print(f"{rows} rows: power {[round(p, 2) for p, _ in power]}, detectable share {power[-1][1]:.3f}")
axes.axhline(0.8, color="#445566", lw=0.6)
axes.axhline(LEVEL, color="#c2185b", lw=0.8)
axes.set_xlabel("share of novel rows")
axes.set_ylabel("found in")
axes.legend()
plt.show()
