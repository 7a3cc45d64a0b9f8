"""Adapter to ArviZ 0.23 and 1.x, the only module that knows which of them is installed.

From 1.0 on, draws are an xarray DataTree instead of an InferenceData, and some functions moved or take more arguments.
"""

import functools
import importlib
import math
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from rarehmm.common.arrays import Array

ENGINE = "h5netcdf"
PACKED = 1100  # largest plausible ratio of uncompressed to compressed bytes


@functools.cache
def arviz() -> Any:
    """Import ArviZ, which is slow, on first use.

    Only once, since warning filters are shared by all threads.
    """
    with warnings.catch_warnings():  # 0.23 warns about its next major version
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return importlib.import_module("arviz")
        except FileNotFoundError:  # another process, importing it for the first time today, moved its stamp file
            return importlib.import_module("arviz")


def is_new() -> bool:
    """Whether the ArviZ that is installed is version 1 or later."""
    return int(arviz().__version__.split(".")[0]) >= 1


def effective_size(x: Array, method: str = "bulk") -> float:
    """Effective sample size of draws (chains, n), of the ``bulk`` or of the ``tail`` (Vehtari et al. 2021).

    It is 1 if all draws are equal, for which ArviZ returns their number.
    """
    if (x == x[0, 0]).all():
        return 1.0
    more = {"prob": (0.05, 0.95)} if method == "tail" else {}
    return float(arviz().ess(x, method=method, **more))


def r_hat(x: Array) -> float:
    """Rank-normalised R-hat of draws (chains, n); infinite if chains do not move."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(arviz().rhat(x))
    return math.inf if math.isnan(value) else value


def tail_index(log_weights: Array) -> float:
    """Shape k of the Pareto distribution fitted to the tail of importance weights (Vehtari et al. 2024).

    Infinite for fewer than two weights.
    """
    if len(log_weights) < 2:
        return math.inf
    with np.errstate(over="ignore"):  # where one weight is all
        if is_new():
            stats = importlib.import_module("arviz_stats.base").array_stats
            try:
                return float(stats.psislw(-log_weights)[1])  # it takes log likelihoods, which are minus log weights
            except ValueError:  # a tail of equal weights has no shape
                return math.inf
        return float(arviz().psislw(log_weights)[1])


def inference_data(
    draws: dict[str, Array], dims: dict[str, list[str]], coords: dict[str, Any], attributes: dict[str, str]
) -> Any:
    """Convert draws (chains, n, ...) by name to InferenceData or a DataTree, with a group ``posterior``."""
    if is_new():
        about = {"posterior": attributes, "/": attributes}
        return arviz().from_dict({"posterior": draws}, dims=dims, coords=coords, attrs=about)
    return arviz().from_dict(posterior=draws, dims=dims, coords=coords, attrs=attributes, posterior_attrs=attributes)


def write_netcdf(data: Any, path: str | Path) -> None:
    """Write draws to a netCDF file."""
    data.to_netcdf(path, engine=ENGINE)


def read_posterior(path: str | Path) -> tuple[str, dict[str, Any]]:
    """Read the ``rarehmm`` attribute and all arrays of the group ``posterior`` of a netCDF file.

    It uses h5py alone, so that a damaged file is never left open, and no more is read than the file can hold.
    """
    with h5py.File(path, "r") as file:
        group, there = file["posterior"], Path(path).stat().st_size
        declared = sum(data.nbytes for data in group.values())
        if declared > PACKED * there:
            raise ValueError(f"it declares {declared} bytes of draws but has only {there}")
        return str(group.attrs["rarehmm"]), {name: data[()] for name, data in group.items()}
