"""rarehmm: Bayesian hidden Markov models for very long series whose interesting regime is rare."""

import importlib
from typing import TYPE_CHECKING, Any

from rarehmm.choosing.selection import Selection, select_n_components
from rarehmm.choosing.suggest import suggest
from rarehmm.choosing.suggestion import Suggestion
from rarehmm.data.inputs import Columns, Inputs, Season, Trend
from rarehmm.data.series import Series
from rarehmm.data.sources import open_source
from rarehmm.data.sources.table import ReadError
from rarehmm.emissions.bernoulli import Bernoulli
from rarehmm.emissions.categorical import Categorical
from rarehmm.emissions.exponential import Exponential
from rarehmm.emissions.free_negative_binomial import FreeNegativeBinomial
from rarehmm.emissions.free_student_t import FreeStudentT
from rarehmm.emissions.gamma import GammaEmission
from rarehmm.emissions.gaussian import Gaussian
from rarehmm.emissions.gaussian_mixture import GaussianMixture
from rarehmm.emissions.log_normal import LogNormal
from rarehmm.emissions.multivariate_gaussian import MultivariateGaussian
from rarehmm.emissions.negative_binomial import NegativeBinomial
from rarehmm.emissions.poisson import Poisson
from rarehmm.emissions.product import Product
from rarehmm.emissions.student_t import StudentT
from rarehmm.emissions.von_mises import VonMises
from rarehmm.emissions.zero_inflated_poisson import ZeroInflatedPoisson
from rarehmm.engine.automatic import density_of
from rarehmm.engine.contracts.sampler import DivergedError
from rarehmm.exact.block_pass import Expectations
from rarehmm.exact.em import Climb, climb
from rarehmm.exact.passes import (
    decode,
    expectations,
    filter_states,
    joint_log_density,
    log_likelihood,
    log_posterior,
    predictive_log_density,
    smooth,
)
from rarehmm.model.autoregression import AroundLevel, Hamilton, Intercept
from rarehmm.model.coordinates import AdditiveLogRatio, ExpandedMean
from rarehmm.model.model import Model
from rarehmm.model.named_priors import default_priors, no_priors, paper_priors
from rarehmm.model.parameters import EffectPriors, Parameters, Priors
from rarehmm.model.priors import Dirichlet, Flat, Gamma, InverseGamma, Normal
from rarehmm.model.simulation import simulate, simulate_file
from rarehmm.model.stationary import stationary
from rarehmm.posterior.posterior import Draws, Posterior, in_order
from rarehmm.posterior.prediction import Forecast, Stream
from rarehmm.posterior.regime_streams import RegimeFilter, RegimeStream
from rarehmm.sampling.chains import run
from rarehmm.sampling.gibbs import gibbs
from rarehmm.sampling.hmc import hmc, metropolis_langevin
from rarehmm.sampling.langevin import langevin
from rarehmm.sampling.rule import Inference, infer
from rarehmm.sampling.variational import GaussianApproximation, ascend, gaussian_approximation
from rarehmm.search.mode import Mode, find_mode
from rarehmm.search.regimes import Regime, judge_states
from rarehmm.transitions.homogeneous import Homogeneous
from rarehmm.transitions.phases import Phases
from rarehmm.transitions.regression import Regression
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

if TYPE_CHECKING:
    from rarehmm.conformance.design import check_design
    from rarehmm.conformance.emission import check_emission
    from rarehmm.conformance.sampler import check_sampler
    from rarehmm.conformance.transition import check_transition
    from rarehmm.estimator import RareHMM

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import RareHMM, plots and the conformance checks on first use: scikit-learn takes a second to import."""
    if name == "RareHMM":
        from rarehmm.estimator import RareHMM

        return RareHMM
    if name == "plots":
        return importlib.import_module("rarehmm.plots")
    if name in ("check_design", "check_emission", "check_sampler", "check_transition"):
        module = importlib.import_module(f"rarehmm.conformance.{name.removeprefix('check_')}")
        return getattr(module, name)
    raise AttributeError(f"module 'rarehmm' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what can be used: the public names, and the plots."""
    return [*__all__, "__version__", "plots"]


__all__ = [
    "AdditiveLogRatio",
    "AroundLevel",
    "Bernoulli",
    "Categorical",
    "Climb",
    "Columns",
    "Dirichlet",
    "DivergedError",
    "Draws",
    "EffectPriors",
    "ExpandedMean",
    "Expectations",
    "Exponential",
    "Flat",
    "Forecast",
    "FreeNegativeBinomial",
    "FreeStudentT",
    "Gamma",
    "GammaEmission",
    "Gaussian",
    "GaussianApproximation",
    "GaussianMixture",
    "Hamilton",
    "Homogeneous",
    "Inference",
    "Inputs",
    "Intercept",
    "InverseGamma",
    "LogNormal",
    "Mode",
    "Model",
    "MultivariateGaussian",
    "NegativeBinomial",
    "Normal",
    "Parameters",
    "Phases",
    "Poisson",
    "Pool",
    "Posterior",
    "Priors",
    "Product",
    "RareHMM",
    "ReadError",
    "Regime",
    "RegimeFilter",
    "RegimeStream",
    "Regression",
    "Season",
    "Selection",
    "Series",
    "Stream",
    "StudentT",
    "Suggestion",
    "Trend",
    "VonMises",
    "Windows",
    "ZeroInflatedPoisson",
    "ascend",
    "check_design",
    "check_emission",
    "check_sampler",
    "check_transition",
    "climb",
    "decode",
    "default_priors",
    "density_of",
    "expectations",
    "filter_states",
    "find_mode",
    "gaussian_approximation",
    "gibbs",
    "hmc",
    "in_order",
    "infer",
    "joint_log_density",
    "judge_states",
    "langevin",
    "log_likelihood",
    "log_posterior",
    "metropolis_langevin",
    "no_priors",
    "open_source",
    "paper_priors",
    "predictive_log_density",
    "run",
    "select_n_components",
    "simulate",
    "simulate_file",
    "smooth",
    "stationary",
    "suggest",
]
