"""Emission families by name, with settings suited to the data."""

from typing import Any

from rarehmm.data.series import Series
from rarehmm.data.summaries import Summary
from rarehmm.emissions import families
from rarehmm.emissions.product import Product
from rarehmm.engine.contracts.family import columns, has


def family_of(emission: Any, series: Series) -> Any:
    """Return the family that is meant by a name, a list of one per column, or the family itself."""
    if isinstance(emission, list):
        return family_per_column(emission, series)
    if isinstance(emission, str):
        if emission in ("gaussian", "multivariate_gaussian") and series.n_columns > 1:
            return families()["multivariate_gaussian"](series.n_columns)
        return family_by_name("gaussian" if emission == "multivariate_gaussian" else emission, series.summaries[0])
    check_labels(emission, series)
    return emission


def family_by_name(name: str, column: Summary) -> Any:
    """Return the family of a name, with settings suited to the column."""
    known = families()
    if name not in known:
        raise ValueError(f"emission is {name!r}; it must be one of {', '.join(known)}, or a family.")
    kind = known[name]
    return kind.suited((column,)) if has(kind, "suited") else kind()


def family_per_column(emission: list[Any], series: Series) -> Product:
    """Return the product of one family per column, whose parameters carry the column names."""
    if len(emission) != series.n_columns:
        raise ValueError(
            f"emission has {len(emission)} families and X has {series.n_columns} columns; give one per column, or use "
            "Product for families of several columns: Product(MultivariateGaussian(2), Poisson())."
        )
    parts = [
        family_by_name(part, column) if isinstance(part, str) else part
        for part, column in zip(emission, series.summaries, strict=True)
    ]
    for part, family in zip(emission, parts, strict=True):
        if columns(family) != 1:
            raise ValueError(
                f"emission has {part!r}, which takes {columns(family)} columns; families in a list take one each. Use "
                "Product: Product(MultivariateGaussian(2), Poisson())."
            )
    return Product(*zip(series.names or [None] * len(parts), parts, strict=True))


def check_labels(family: Any, series: Series) -> None:
    """Raise ValueError if a Product names its columns in a different order from the data."""
    if not isinstance(family, Product) or series.names is None:
        return
    for label, place in zip(family.given, family.places, strict=True):
        at = place.columns[0]
        if label in series.names and at < len(series.names) and series.names[at] != label:
            raise ValueError(
                f"emission has {label!r} for column {at}, which is {series.names[at]!r} in X; put the columns in the "
                "order of the families."
            )
