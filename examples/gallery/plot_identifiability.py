"""What can be known at all.

Without assumptions a class mix is not determined by the data, however much of it there is. For
problems with finitely many values of x, `osls.identifiability.check` says what is, and computes the
sharp ranges. The two problems are examples 1 and 2 of the paper's appendix.
"""

import matplotlib.pyplot as plt
import numpy as np

from osls.identifiability import check

# %%
# Columns are p(x|y) of the two known classes; the target is what is seen of all three together.
example_1 = check(
    [[0.4, 0.56], [0.3, 0.3], [0.2, 0.1], [0.1, 0.04], [0.0, 0.0]],
    [0.356, 0.207, 0.09, 0.042, 0.305],
)
example_2 = check(
    [[0.5, 0.2], [0.3, 0.4], [0.1, 0.35], [0.1, 0.05]],
    [0.24, 0.2, 0.35, 0.21],
)
for name, found in (("Example 1", example_1), ("Example 2", example_2)):
    print(name)
    print("  identified:", found.identified)
    print("  why:", found.reason)
    for solution in found.solutions:
        print("  a mix that fits:", solution.marginal.round(3))
    print("  novel share without any assumption:", np.round(found.novel_range, 3))
    print("  if the novel class is irreducible:", np.round(found.irreducible.novel, 3))

# %%
# The shaded area holds the shares of the two known classes that leave every cell some room; what they
# do not fill is novel. Each line is a cell that is full: it holds nothing novel. Two lines cross in a
# solution (the dots) if no other cell is overfilled there. Example 1 has three such crossings (the
# paper names two), so the data do not say which is true.
figure, axes = plt.subplots(1, 2, figsize=(9, 4))
side = np.linspace(0, 0.8, 400)
a, b = np.meshgrid(side, side)
for each, title, found in ((axes[0], "example 1", example_1), (axes[1], "example 2", example_2)):
    inside = np.ones_like(a, dtype=bool)
    for (p1, p2), room in zip(found.p_x_given_y, found.p_target, strict=True):
        inside &= p1 * a + p2 * b <= room
        if p1 + p2 > 0:
            each.plot(side, (room - p1 * side) / p2, color="#8a96a5", lw=1)
    each.contourf(a, b, inside, [0.5, 1], colors=["#3b7dd8"], alpha=0.25)
    for solution in found.solutions:
        each.plot(*solution.marginal[:2], "o", color="#d2691e", ms=8)
    each.set(title=title, xlim=(0, 0.8), ylim=(0, 0.8), xlabel="share of class 1", ylabel="share of class 2")
plt.show()
