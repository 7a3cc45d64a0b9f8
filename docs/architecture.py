"""The packages of rarehmm in their order, and the imports between them.

``PACKAGES`` is the order that ``tests/unit/test_architecture.py`` enforces: a module may import what stands above it in
the list, between packages and inside each.
"""

import ast
import pathlib
from collections.abc import Iterator

SOURCE = pathlib.Path(__file__).parent.parent / "src" / "rarehmm"

# package -> its modules in order; () for a single file, and for a door, whose files do not import each other (what they
# share is in files that begin with an underscore)
PACKAGES: dict[str, tuple[str, ...]] = {
    "common": ("arrays", "checks", "progress", "writing"),
    "data": ("sources", "tables", "workers", "domains", "summaries", "series", "pieces", "transforms", "files"),
    "engine": ("dispatch", "lanes", "elementary", "special", "contracts", "automatic", "kernels"),
    "model": (
        "priors", "parameters", "checks", "learnable", "named_priors", "stationary", "coordinates", "fixed", "target",
        "model", "simulation",
    ),
    "emissions": (),
    "exact": ("blocks", "block_sample", "statistics", "densities", "block_pass", "passes", "batched", "em"),
    "search": ("labels", "initial", "regimes", "selection", "mode", "long_series"),
    "windows": ("windows", "gradients", "label_sums", "pool"),
    "designs": (),
    "samplers": (),
    "sampling": (
        "chains", "starts", "gibbs", "langevin", "hmc", "importance", "variational", "arviz_adapter", "diagnostics",
        "methods", "rule",
    ),
    "conformance": ("emission",),
    "posterior": ("posterior", "prediction", "streaming", "residuals", "predictive_checks", "events"),
    "estimator": (),
    "plots": (),
    "paper": (
        "common", "synthetic", "real", "grid", "eeg", "goes", "gradients", "no_rare", "posterior", "rates", "runtime",
        "single", "sleep", "solar", "tuning_sleep", "tuning_solar", "two_rare",
    ),
    "app": ("settings", "report", "runs", "cli"),
}  # fmt: skip


def imported(path: pathlib.Path, source: pathlib.Path = SOURCE) -> Iterator[str]:
    """The modules that a file imports, also inside functions; of this package by their full names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                inside = source.parent.joinpath(*str(node.module).split("."), alias.name)
                is_module = inside.with_suffix(".py").exists() or inside.is_dir()
                yield f"{node.module}.{alias.name}" if is_module else str(node.module)


def violation(here: tuple[str, ...], other: tuple[str, ...]) -> str:
    """Why a module (its path below ``rarehmm``) may not import another one; empty if it may."""
    order = list(PACKAGES)
    for module in (here, other):
        if not module or module[0] not in order:
            return f"{'.'.join(module) or 'rarehmm'} has no place in the list of docs/architecture.py"
    if here[0] != other[0]:
        below = order.index(other[0]) > order.index(here[0])
        return f"{here[0]} imports {other[0]}, which stands below it" if below else ""
    mine, theirs = (module[1] if len(module) > 1 else "" for module in (here, other))
    if mine == theirs or not theirs:
        return ""
    inside = PACKAGES[here[0]]
    if not inside:
        return "" if theirs[0] == "_" or not mine else f"{mine} imports {theirs}: files of a door stand alone"
    for name in (mine, theirs):
        if name and name not in inside:
            return f"{here[0]}.{name} has no place in the list of docs/architecture.py"
    below = mine and inside.index(theirs) > inside.index(mine)
    return f"{here[0]}.{mine} imports {theirs}, which stands below it" if below else ""
