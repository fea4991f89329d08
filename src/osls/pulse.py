"""PULSE: positive and unlabelled learning post label shift estimation (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from torch import nn

from osls._core.arrays import Floats, Ints, with_novel
from osls._core.parameters import AtLeast, Between, Constraint, OneOf, check_parameters
from osls._core.progress import Advance, no_progress, progress_bar
from osls._core.saving import saveable
from osls._core.validation import check_folds, check_rows, check_target
from osls.base import Adaptation, Callback, Combined, Task
from osls.growth import Growing
from osls.inference.findings import Estimate, Findings, check_all, find_all
from osls.inference.mix import SHIFTS, SHIFTS_OF, MixFromScores
from osls.inference.novelty import NoveltyTest
from osls.mixture import MixtureEstimator, shares_by_class
from osls.pu import cvir
from osls.pu.objectives import NETWORK_OBJECTIVES, train_objective
from osls.shift.alignment import align_table
from osls.shift.scores import HeldOutScores
from osls.shift.separability import LEAST_SHARE, accepted_marginal
from osls.training.choose import LearnerSpec, accepts_nan
from osls.training.cost import Cost, estimate_cost
from osls.training.effort import EFFORTS
from osls.training.learners import FoldModels, Learner, NetworkLearner, cross_fit_all
from osls.training.predictors import Constant
from osls.training.roles import (
    Roles,
    calibrated,
    calibrated_joint,
    class_work,
    joint_task,
    network_of,
)
from osls.training.sampling import Split, assign_folds
from osls.training.trainer import Device

__all__ = ["PULSE"]

# The separability variant of recipe="paper" has settled when no known class's share moves more.
_SETTLED = 0.01


@saveable
class PULSE(Growing, Findings):
    r"""Estimate the new class mix and the novel share of a target, and classify it (k+1)-way.

    Parameters
    ----------
    recipe : {"cross-fit", "paper", "fine-tune"}, default="cross-fit"
        "paper" is Algorithm 1 as printed: one 80/20 split, class-wise BBE, one network alternating BBE and
        CVIR (docs/method/paper.md lists what differs, and why). "cross-fit" uses only out-of-fold
        predictions, estimates the shares jointly from one (k+1)-way model, and keeps the novel share fixed
        while CVIR learns the classifier. "fine-tune" is for networks that are expensive to train: as "paper",
        but the discriminator starts from the source classifier's weights, learns the novel class beside the
        known ones, and its probabilities of the known classes are averaged with the source classifier's.
    source_classifier, discriminator : "auto", "mlp", "trees", "linear", "convnet", estimator or factory
        The models that predict the known class, and known against novel. "auto" is a small convnet for
        images; for tables an MLP and extremely randomised trees (an MLP and logistic regression if sparse),
        blended by their out-of-fold log loss; an MLP alone if the source and the target have more than 50,000
        rows. Or a scikit-learn classifier, or a callable ``(input_shape, n_outputs) -> torch.nn.Module``. A
        source classifier that is already fitted (on other rows) is used as it is.
    shift : {"auto", "refined", "joint", "bbe", "separability"}, default="auto"
        How the mix among the known classes is estimated: "bbe" is Algorithm 2, "joint" solves for all
        classes at once, "separability" is maximum likelihood among the rows accepted as known, alternating
        (the paper's appendix; recipe="paper" trains the discriminator again in each of up to ``rounds``
        alternations), "refined" lets one such round move "joint" within its standard errors.
        "auto" is "refined" for the cross-fit recipe, "bbe" for the paper's, "separability" for fine-tuning.
    mixture : mixture estimator, optional
        How the novel share is estimated, used as it is; with shift="bbe" also each class's share. By default
        :class:`osls.mixture.BBE`, corrected for novel rows that hide among the known classes
        (:mod:`osls.inference.calibrated`; cross-fit recipe).
    objective : str, default="cvir"
        How the discriminator is trained: "cvir", "nnpu", "upu", "pvu", "cvir-penalty", or with the sigmoid
        surrogate "nnpu-sigmoid", "upu-sigmoid" (not with recipe="fine-tune"; all but "cvir" need a network).
        ``PULSE(recipe="paper", mixture=DEDPUL(), objective="nnpu")`` is the paper's "PULSE (alternative)".
    effort : {"balanced", "quick", "best"}, default="balanced"
        How much work the cross-fit recipe may be (:mod:`osls.training.effort` has the table): "quick" is a
        first look with small forests (a linear model if sparse), for shares that may be several points off;
        "best" trains larger models for longer, at two to three times the time of "balanced".
    n_folds : int, optional
        Folds of the cross-fit recipe; by default five, three with "quick", fewer for very many rows.
    rounds : int, optional
        Largest number of CVIR refits, or of alternations of the paper's separability variant; by default two,
        one with "quick", three with "best".
    max_steps : int, optional
        Optimiser steps of each network training; by default about eight epochs of a cross-fitted MLP
        (at least 300 steps), thirty of other networks and objectives (at least 1,000).
    patience : int, optional
        Networks stop when their accuracy on held-out source rows has not increased for so many epochs (the
        paper's rule; Algorithm 3 has its own). By default all steps are taken.
    align : bool, default=False
        Whether known classes that look a little different in the target are first moved to where they are
        now, and both sides blurred (:mod:`osls.shift.alignment`; dense tables only). Turn it on if the
        verdict says that looks changed and the change is small: a sensor that drifted, another batch. Where
        nothing changed it costs accuracy.
    callback : callable, optional
        For the recipes "paper" and "fine-tune": called after each epoch with its number and the target's
        current probabilities (for "fine-tune", before the final corrections). If you have the target's
        labels you can track the accuracy; PULSE never sees them.
    novel_level : float, default=0.05
        The novel share is reported as zero unless "nothing is new" is rejected at this level: the rate of
        false alarms (benchmarks/novelty.py).
    level : float, default=0.95
        Level of the intervals.
    n_bootstrap : int, optional
        Number of bootstrap replicates for them; by default 200, 50 with effort="quick".
    novel_label : object, optional
        Name of the novel class: -1 by default, "novel" if the classes are strings.
    device : str, default="auto"
        "cpu", "cuda", "mps", or "auto" for the best available.
    n_jobs : int, optional
        Threads for trees.
    random_state : int, RandomState instance or None
        Seed for all random steps.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    classes_ : array of shape (k + 1,)
        The known classes in sorted order, then the novel label.
    target_marginal_, novel_prevalence_ : array of shape (k + 1,), and float
        Estimated share of each of ``classes_`` in the target, and its last entry.
    novel_interval_, marginal_interval_ : tuple of two floats, and array of shape (k + 1, 2)
        Intervals for it and for every class: a bootstrap over out-of-fold scores that repeats the whole
        estimate, widened by what a bootstrap cannot see (:mod:`osls.inference.calibrated`; cross-fit recipe).
    novel_bound_ : tuple of two floats
        Finite-sample bound for the novel share (:func:`osls.theory.bbe_interval`; conservative: it holds for
        any sample size, given the label shift weights).
    marginal_bound_ : array of shape (k + 1, 2)
        Finite-sample bounds that hold for all shares at once (:func:`osls.shift.joint.joint_range`;
        conservative). Where the known classes' bins contradict each other, only the upper bounds of the known
        classes and the lower bound of the novel share remain (cross-fit recipe).
    novelty_pvalue_, detectable_share_ : float
        p-value of the null hypothesis "nothing in the target is novel", and the novel share that this test
        would detect with a power of 80 % (not with recipe="paper").
    diagnostics_ : Diagnostics
        Checks of the assumptions; ``diagnostics_.verdict`` says whether no violation was seen, a share
        is only an upper bound, the mix is not identified, or the answer is not to be trusted, and why;
        ``diagnostics_.cause`` names what most likely changed.
    expected_accuracy_, source_expected_accuracy_ : ExpectedAccuracy
        Expected share of right answers in the target, overall with an interval and by class, without its
        labels: of ``target_labels_``, and of the source classifier as it was.
    importance_weights_ : array of shape (k,)
        w(j) = p'_t(j) / p_s(j), the label shift among the known classes.
    target_proba_, target_labels_ : arrays of m rows
        Answers for the rows of X_target.
    history_ : list of dict
        What each step and round of the fit did.

    References
    ----------
    .. [1] Garg, Balakrishnan, Lipton. Domain Adaptation under Open Set Label Shift. NeurIPS 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from osls import PULSE
    >>> from osls.datasets import simulate_osls
    >>> X, y = load_digits(return_X_y=True)
    >>> problem = simulate_osls(X, y, novel=[8, 9], random_state=0)
    >>> model = PULSE(discriminator="trees", source_classifier="trees", random_state=0)
    >>> model = model.fit(problem.X_source, problem.y_source, X_target=problem.X_target)
    >>> model.classes_
    array([ 0,  1,  2,  3,  4,  5,  6,  7, -1])
    >>> bool(abs(model.novel_prevalence_ - problem.target_marginal[-1]) < 0.1)
    True
    """

    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {
        "recipe": OneOf(tuple(SHIFTS_OF)),
        "objective": OneOf(("cvir", *NETWORK_OBJECTIVES)),
        "shift": OneOf(("auto", *SHIFTS)),
        "effort": OneOf(tuple(EFFORTS)),
        "n_folds": AtLeast(2, optional=True),
        "rounds": AtLeast(1, optional=True),
        "max_steps": AtLeast(1, optional=True),
        "patience": AtLeast(1, optional=True),
        "novel_level": Between(0, 1, closed=True),
        "level": Between(0, 1),
        "n_bootstrap": AtLeast(2, optional=True),
        "device": Device(),
    }

    def __init__(
        self,
        *,
        recipe: Literal["cross-fit", "paper", "fine-tune"] = "cross-fit",
        source_classifier: LearnerSpec = "auto",
        discriminator: LearnerSpec = "auto",
        shift: Literal["auto", "refined", "joint", "bbe", "separability"] = "auto",
        mixture: MixtureEstimator | None = None,
        objective: str = "cvir",
        effort: Literal["balanced", "quick", "best"] = "balanced",
        n_folds: int | None = None,
        rounds: int | None = None,
        max_steps: int | None = None,
        patience: int | None = None,
        align: bool = False,
        callback: Callback | None = None,
        novel_level: float = 0.05,
        level: float = 0.95,
        n_bootstrap: int | None = None,
        novel_label: Any = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.recipe = recipe
        self.source_classifier = source_classifier
        self.discriminator = discriminator
        self.shift = shift
        self.mixture = mixture
        self.objective = objective
        self.effort = effort
        self.n_folds = n_folds
        self.rounds = rounds
        self.max_steps = max_steps
        self.patience = patience
        self.align = align
        self.callback = callback
        self.novel_level = novel_level
        self.level = level
        self.n_bootstrap = n_bootstrap
        self.novel_label = novel_label
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Missing values pass where both models take them.
        tags.input_tags.allow_nan = accepts_nan(self.source_classifier) and accepts_nan(self.discriminator)
        return tags

    def fit(self, X: Any, y: Any, X_target: Any = None, sample_weight: Any = None) -> Self:
        """Adapt to the target.

        Parameters
        ----------
        X, y, X_target
            As for every adapter, see :meth:`osls.base.OpenSetAdapter.fit`.
        sample_weight : array-like of shape (n,), optional
            How much each labelled row counts, for example because it was sampled more rarely. Within a class
            the weights say what the class looks like; their sum by class is its share in the source. Rows of
            weight zero are left out. Intervals count weighted rows as the number of equal rows that they are
            worth. Only for recipe="cross-fit": the others draw whole rows.

        Returns
        -------
        self
        """
        if sample_weight is not None and self.recipe != "cross-fit":
            raise ValueError(
                f"recipe={self.recipe!r} takes no sample_weight; use recipe='cross-fit', or repeat the rows."
            )
        return self._fit(X, y, X_target, sample_weight)

    def estimate_cost(self, X: Any, y: Any, X_target: Any) -> Cost:
        """Estimate what ``fit`` with these arguments will take, from a few timed steps; nothing is fitted.

        For recipe="cross-fit". Rounds may end early, so the estimate is rather too long than too short.

        Examples
        --------
        >>> import numpy as np
        >>> from osls import PULSE
        >>> X, target = np.random.default_rng(0).normal(size=(2, 300, 4))
        >>> cost = PULSE(effort="quick").estimate_cost(X, X[:, 0] > 0, target)
        >>> 0 < cost.seconds < 600 and cost.memory > 0
        True
        """
        if self.recipe != "cross-fit":
            raise ValueError(f"recipe={self.recipe!r}: only a fit with recipe='cross-fit' can be estimated.")
        check_parameters(self)
        columns, judge = getattr(X, "columns", None), copy(self)  # which validation may write to
        X, y = check_rows(judge, X, y, reset=True)
        X_target = check_target(judge, X_target, X, columns)
        rows = X.shape[0] + X_target.shape[0]
        build = partial(self._roles.discriminating, advance=no_progress, n_rows=rows)
        return estimate_cost(X, y, X_target, self._roles.plan(rows), build)

    def _adapt(self, task: Task) -> Adaptation:
        self._estimator()  # raises an error if the recipe has no such shift, before anything is trained
        if self.align:
            X, X_target = align_table(task.X, task.y, task.X_target, task.rng)
            task = replace(task, X=X, X_target=X_target)
        stages = 2 + self._roles.plan().rounds if self.recipe == "cross-fit" else 2
        adapt = {
            "paper": self._adapt_by_paper,
            "fine-tune": self._adapt_by_fine_tuning,
            "cross-fit": self._adapt_by_cross_fitting,
        }[self.recipe]
        with progress_bar("PULSE", stages, visible=self.verbose) as advance:
            return adapt(task, advance)

    # -- Algorithm 1 as printed ---------------------------------------------------------------------

    def _adapt_by_paper(self, task: Task, advance: Advance) -> Adaptation:
        source_learner, learner = self._roles.both_by_epoch(task.pool, task.classes, advance)
        # Step 1: split both sides 80/20 into training and held-out rows.
        split = task.split()
        # Step 2: the source classifier, on the training part.
        f_s = self._classify_source(source_learner, task, split.fold)
        class_s, class_t = f_s.scores[: len(task.y)][split.source], f_s.scores[len(task.y) :][split.target]
        y_s = task.y[split.source]
        # Step 3: label shift among the known classes on the held-out part, by Algorithm 2.
        shares = shares_by_class(class_s, y_s, class_t, self._estimator().mixture)
        marginal = shares.marginal
        found = {"shares": shares.alpha.tolist(), "marginal": marginal.tolist()}
        task.history.append({"step": "label shift", **found})

        def discriminate() -> tuple[cvir.Discriminator, HeldOutScores]:
            # Step 4: re-sample the source, here as weights that the sampler draws by.
            problem = cvir.PUProblem(task.y, task.weights_for(marginal), task.X_target.shape[0], task.copy_of)
            # Step 5: the discriminator and the novel share, by Algorithm 3.
            f_d = self._alternate(learner, problem, split, f_s, marginal, task)
            known_t = f_d.target_scores[split.target]
            return f_d, HeldOutScores(y_s, class_s, class_t, f_d.held_out_scores, known_t)

        f_d, scores = discriminate()
        for _ in range(self._roles.plan().rounds if self.shift == "separability" else 0):
            # The appendix's variant: label shift among the rows accepted as known, then both steps again.
            previous, marginal = marginal, accepted_marginal(scores)
            task.history.append({"step": "label shift", "marginal": marginal.tolist()})
            f_d, scores = discriminate()
            if np.abs(marginal - previous).max() < _SETTLED:
                break
        # Step 6: combine.
        combined = Combined(f_s.predictor, f_d.predictor, marginal / task.source_marginal)
        return self._answer(task, f_s, f_d, combined, scores, marginal, f_d.novel_share)

    # -- The same six steps with one network that is trained further --------------------------------

    def _adapt_by_fine_tuning(self, task: Task, advance: Advance) -> Adaptation:
        self._roles.check_fine_tuning(task.X, task.classes)
        source_learner, learner = self._roles.both_by_epoch(task.pool, task.classes, advance)
        # Steps 1 and 2: as above.
        split = task.split()
        f_s = self._classify_source(source_learner, task, split.fold)
        class_s, class_t = f_s.scores[: len(task.y)][split.source], f_s.scores[len(task.y) :]
        y_s = task.y[split.source]
        # Step 3: label shift, on all target rows: the source classifier was trained on none of them. No share
        # may be zero here, or a class that its bin missed could not be found again below.
        first = np.maximum(
            shares_by_class(class_s, y_s, class_t, self._estimator().mixture).marginal, LEAST_SHARE
        )
        first /= first.sum()
        # Step 4: re-sample the source, as weights.
        problem = cvir.PUProblem(task.y, task.weights_for(first), task.X_target.shape[0], task.copy_of)
        # Step 5: the source classifier learns one more class, with as much weight as all the known ones. It
        # is then accurate enough to select the known rows, from which the label shift is estimated again.
        f_d = self._alternate(learner, problem, split, f_s, first, task, network_of(f_s.predictor))
        all_scores = HeldOutScores(y_s, class_s, class_t, f_d.held_out_scores, f_d.target_scores)
        scores = all_scores.take(np.arange(len(y_s)), np.flatnonzero(split.target))
        marginal = self._known_marginal(all_scores, task)
        novel_share, test = self._novel_share(scores, marginal, task)
        # Step 6: average the two models' answers.
        prior_shift = with_novel(marginal, novel_share) / with_novel(first, 0.5)
        combined = Combined(f_s.predictor, f_d.predictor, marginal / task.source_marginal, prior_shift)
        return self._answer(task, f_s, f_d, combined, scores, marginal, novel_share, test)

    # -- The same six steps, cross-fitted -----------------------------------------------------------

    def _adapt_by_cross_fitting(self, task: Task, advance: Advance) -> Adaptation:
        n, m = task.X.shape[0], task.X_target.shape[0]
        source_learner, learner = self._roles.both(task.pool, task.classes, advance)
        # Step 1: folds in place of a split; every row is held out once.
        plan = self._roles.plan(n + m)
        n_folds = check_folds(task.y, task.classes, plan.n_folds, m)
        # Step 2: the source classifier; none of its models is trained on target rows.
        # Step 3: label shift, from a model that has the target itself as its last class.
        source_fold = np.concatenate([assign_folds(task.y, n_folds, task.rng, task.copy_of), np.full(m, -1)])
        classes = class_work(source_learner, task.y, task.row_weight, source_fold, task.k, task.rng)
        domains = joint_task(task.y, task.row_weight, m, n_folds, task.rng, task.copy_of, plan.divisions)
        f_s, joint = cross_fit_all([classes, (learner, domains)])
        f_s, domain = self._calibrated(f_s, task, source_fold), calibrated_joint(joint, domains)
        sides = f_s.scores[:n], f_s.scores[n:], domain[:n], domain[n:]
        scores = HeldOutScores(task.y, *sides, task.weight, task.copies)
        marginal = self._known_marginal(scores, task)
        # Step 4: re-sample the source, as weights.
        problem = cvir.PUProblem(task.y, task.weights_for(marginal), m, task.copy_of)
        # Step 5: the novel share from out-of-fold domain scores, then the discriminator with it fixed.
        novel_share, test = self._novel_share(scores, marginal, task)
        known_t = scores.domain(marginal)[1]
        going_on = {"fold": domains.fold, "start": joint.predictor} if self._roles.warm else {}
        f_d = self._discriminate(learner, task, problem, known_t, novel_share, n_folds, advance, going_on)
        # Step 6: combine.
        combined = Combined(f_s.predictor, f_d.predictor, marginal / task.source_marginal)
        return self._answer(task, f_s, f_d, combined, scores, marginal, novel_share, test)

    def _adapt_to_nothing(self, task: Task) -> Adaptation:
        """Without a target: step 2 alone."""
        cross_fitted, n = self.recipe == "cross-fit", task.X.shape[0]
        n_folds = check_folds(task.y, task.classes, self._roles.plan(n).n_folds if cross_fitted else 2, n)
        learner = self._roles.source(task.X, task.classes, no_progress)
        fold = assign_folds(task.y, n_folds if cross_fitted else 1, task.rng, task.copy_of)
        f_s = self._classify_source(learner, task, fold)
        combined = Combined(f_s.predictor, Constant((0.0, 1.0)), np.ones(task.k))
        none = np.zeros((0, task.k + 1))
        return Adaptation(task.source_marginal, 0.0, none, learned={"_predictor": combined})

    # -- The steps ------------------------------------------------------------------------------------

    def _classify_source(self, learner: Learner, task: Task, fold: Ints) -> FoldModels:
        """Fit f_s on the source rows of the pool."""
        work = class_work(learner, task.y, task.row_weight, fold, task.k, task.rng)
        (models,) = cross_fit_all([work])
        return self._calibrated(models, task, fold)

    def _calibrated(self, models: FoldModels, task: Task, fold: Ints) -> FoldModels:
        """Calibrate f_s on held-out rows, which the paper does not."""
        calibrate = self.recipe != "paper"
        return calibrated(models, task.y, task.row_weight, fold, task.history, calibrate=calibrate)

    def _alternate(
        self,
        learner: NetworkLearner,
        problem: cvir.PUProblem,
        split: Split,
        f_s: FoldModels,
        marginal: Floats,
        task: Task,
        source_network: nn.Module | None = None,
    ) -> cvir.Discriminator:
        """Learn known against novel by Algorithm 3, which also estimates the novel share."""
        return cvir.alternate(
            learner,
            problem,
            split.fold == 0,
            self._estimator().mixture,
            objective=self.objective,
            rng=task.rng,
            history=task.history,
            on_epoch=task.follow(f_s.scores[problem.n_source :], marginal, self.callback),
            source_network=source_network,
        )

    def _discriminate(
        self,
        learner: Learner,
        task: Task,
        problem: cvir.PUProblem,
        known_scores: Floats,
        novel_share: float,
        n_folds: int,
        advance: Advance,
        going_on: Mapping[str, Any],
    ) -> cvir.Discriminator:
        """Learn known against novel, with the novel share fixed."""
        if round(novel_share * problem.n_target) < 2:
            # Too few novel rows to learn from.
            return cvir.Discriminator.all_known(problem, novel_share)
        shared: dict[str, Any] = {"n_folds": n_folds, "rng": task.rng, "history": task.history}
        if self.objective != "cvir":
            networks = self._roles.network(task.pool, advance)
            return train_objective(networks, problem, self.objective, 1 - novel_share, **shared)
        shared |= {"rounds": self._roles.plan().rounds, **going_on}
        return cvir.refit(learner, problem, known_scores, novel_share, **shared)

    def _known_marginal(self, scores: HeldOutScores, task: Task) -> Floats:
        """Estimate p'_t, the mix among the known classes."""
        marginal = self._estimator().known_marginal(scores)
        task.history.append({"step": "label shift", "marginal": marginal.tolist()})
        return marginal

    def _novel_share(self, scores: HeldOutScores, marginal: Floats, task: Task) -> tuple[float, NoveltyTest]:
        """Estimate the novel share; zero unless "nothing is new" is rejected."""
        share = self._estimator().novel_share(scores, marginal)
        test = self._estimator().test(scores, self.novel_level)
        task.history.append({"step": "novel share", "estimate": share, "p_value": test.pvalue})
        return share if test.pvalue <= self.novel_level else 0.0, test

    def _answer(
        self,
        task: Task,
        f_s: FoldModels,
        f_d: cvir.Discriminator,
        combined: Combined,
        scores: HeldOutScores,
        marginal: Floats,
        novel_share: float,
        test: NoveltyTest | None = None,
    ) -> Adaptation:
        """Collect the results: probabilities of the target, intervals, what follows from the scores."""
        proba = combined.combine(f_d.target_proba, f_s.scores[len(task.y) :])
        source_proba = combined.combine(f_d.held_out_proba, scores.class_source)
        mix, repeats = with_novel(marginal, novel_share), self._roles.plan().replicates
        interval = self._estimator().interval(scores, mix, level=self.level, repeats=repeats, rng=task.rng)
        estimate = Estimate(marginal, novel_share, interval, self.level, test)
        learned = {"_predictor": combined, **find_all(scores, estimate, source_proba, proba, task.rng)}
        checks = check_all(scores, estimate, task.classes.tolist(), task.history, task.shared)
        learned["diagnostics_"] = checks
        return Adaptation(marginal, novel_share, proba, interval, learned)

    @property
    def _roles(self) -> Roles:
        return Roles.of(self)

    def _estimator(self) -> MixFromScores:
        return MixFromScores.of(self.recipe, self.shift, self.mixture)
