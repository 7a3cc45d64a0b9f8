"""What each window says about theta: all that a design may look at."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.exact.block_sample import Observations
from rarehmm.model.model import Model
from rarehmm.search.mode import Mode
from rarehmm.windows.gradients import Frozen, WindowSums, control_variate_residuals, freeze, window_sums
from rarehmm.windows.windows import Windows


class WindowInformation:
    """What each window says about theta, worked out when a design asks for it.

    Parameters
    ----------
    model, theta, series, windows
        The windows of a series, and the point theta (d,) of a model at which they are looked at.
    sums : WindowSums, optional
        Expectations of each window, such as ``label_sums`` if labels are taken for the truth.  By default those given
        the window and its buffers.
    frozen : Frozen, optional
        Control variates.  By default those at theta.
    factor : array (d, d), optional
        Cholesky factor of the posterior covariance at theta, which whitens gradients; the identity by default.
    points : array (R, d), optional
        Points near theta to which a chain may go; ``around`` draws them.
    threads : int, optional

    Attributes
    ----------
    count : int
        N, the number of windows.

    Examples
    --------
    >>> import numpy as np
    >>> from rarehmm import Gaussian, Model, Series, Windows, paper_priors
    >>> from rarehmm.designs.targeted import targeted
    >>> from rarehmm.windows.information import WindowInformation
    >>> series = Series(np.r_[np.zeros(45), np.full(5, 9.0)] + np.random.default_rng(0).normal(size=50))
    >>> model = Model(Gaussian(), 2, paper_priors(Gaussian()))
    >>> theta = model.pack(model.parameters([[0.95, 0.05], [0.2, 0.8]], mean=[0, 9], variance=1))
    >>> info = WindowInformation(model, theta, series, Windows(series, 2, 5))
    >>> targeted(info).probabilities[1].round(2)  # for the mean of the rare state
    array([0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.91])
    """

    def __init__(
        self,
        model: Model,
        theta: Array,
        series: Observations,
        windows: Windows,
        *,
        sums: WindowSums | None = None,
        frozen: Frozen | None = None,
        factor: Array | None = None,
        points: Array | None = None,
        threads: int | None = None,
    ) -> None:
        self.model, self.theta, self.series, self.windows = model, theta, series, windows
        self.factor = np.eye(model.size) if factor is None else factor
        self.points = np.empty((0, model.size)) if points is None else points
        self.count, self.threads = windows.count, threads
        if sums is not None:
            self.sums = sums
        if frozen is not None:
            self.frozen = frozen

    @classmethod
    def around(
        cls,
        rng: np.random.Generator,
        mode: Mode,
        series: Observations,
        windows: Windows,
        *,
        frozen: Frozen | None = None,
        points: int = 4,
        threads: int | None = None,
    ) -> "WindowInformation":
        """What windows say at a mode, and at ``points`` draws of the Laplace approximation around it."""
        near = [mode.theta + mode.factor @ rng.standard_normal(len(mode.theta)) for _ in range(points)]
        return cls(
            mode.model, mode.theta, series, windows, frozen=frozen, factor=mode.factor, points=np.array(near),
            threads=threads,
        )  # fmt: skip

    @cached_property
    def sums(self) -> WindowSums:
        """Expected scores, transitions and counts of each window at theta."""
        return window_sums(self.model, self.model.unpack(self.theta), self.series, self.windows, threads=self.threads)

    @cached_property
    def frozen(self) -> Frozen:
        """Control variates at theta."""
        return freeze(self.model, self.theta, self.series, self.windows, threads=self.threads)

    def whitened_changes(self) -> Iterator[Array]:
        r"""For each of the points, :math:`L^\top \Delta_n` (N, d): each window's gradient there beyond its control
        variate, whitened by the factor L."""
        for theta in self.points:
            found = control_variate_residuals(
                self.model, theta, self.series, self.windows, self.frozen, threads=self.threads
            )
            yield found @ self.factor
