"""Sleep EEG (Ou et al., section 5.2): excerpts of the DREAMS spindle database in place of the paper's recording."""

import pathlib
from collections.abc import Sequence

import numpy as np

from rarehmm.common.arrays import Array, IntArray

FOLDER = "dreams_spindles"
TRAIN, TEST = (2, 4, 5), (6, 7, 8)  # six people at 200 Hz, a million samples each
STEP = 0.01  # microvolt: the recorder's step
SHARE = 0.0025  # share of the samples that are rare spikes


def load(folder: str | pathlib.Path, excerpts: Sequence[int] = TRAIN) -> list[Array]:
    """Read the excerpts in microvolts, one array per person, since each is an independent sequence.

    A file ``excerpt2.npz`` holds ``uV_x1e4`` (microvolts times 10,000, as integers) and ``fs`` (samples per second).
    """
    sequences, rates = [], {}
    for number in excerpts:
        path = pathlib.Path(folder) / f"excerpt{number}.npz"
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist; pass the folder of excerpt1.npz to excerpt8.npz.")
        with np.load(path, allow_pickle=False) as file:
            sequences.append(file["uV_x1e4"] * 1e-4)
            rates[number] = int(file["fs"])
    if len(set(rates.values())) > 1:
        raise ValueError(f"sampling rates of excerpts differ ({rates}); a model needs a single rate. Leave some out.")
    return sequences


def transform(x: Array, offset: float = STEP) -> Array:
    """Return the natural logarithm ``log(|x| + offset)``, with ``x`` and ``offset`` in microvolts.

    The recorder has a resolution of 0.01 microvolt, with levels slightly off zero.  No sample of the six excerpts at
    200 Hz is exactly 0, but how close one comes, and so how far down ``log|x|`` reaches, is an accident of rounding:
    -9.2 in excerpts 5 and 7, -5.4 in excerpt 4.  An offset of one step cuts the tail off between -4.6 and -4.2 in all
    six, and moves the 1 % quantile by at most 0.08 and the median by 0.001.
    """
    if offset < 0:
        raise ValueError(
            f"offset is {offset:g}; it must be 0 or more, such as the recorder's step of {STEP} microvolt."
        )
    with np.errstate(divide="ignore"):
        y = np.log(np.abs(x) + offset)
    if np.isneginf(y).any():
        i = int(np.argmax(np.isneginf(y)))
        raise ValueError(f"x[{i}] is 0, whose logarithm is infinite; pass a positive offset.")
    return np.asarray(y, dtype=np.float64)


def spikes(y: Array, quantile: float = SHARE) -> IntArray:
    """Return the rows of the rare spikes: where a transformed sequence is at or below its own quantile.

    The lower tail, as in the paper, whose spikes are values <= 3.8 on the log of nanovolts.  That logarithm must be
    natural: at most e^3.8 = 45 nanovolt are 0.18 to 0.35 % of the samples of each excerpt (0.25 % of all, hence the
    default), at most 10^3.8 = 6.3 microvolt 24 to 45 %.  These spikes are zero crossings: of 2,790 runs in the training
    excerpts, 2,742 are a single sample.  Head motion, which the paper also mentions, is in the upper tail.
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile is {quantile:g}; it must be between 0 and 1, such as {SHARE}.")
    return np.flatnonzero(y <= np.nanquantile(y, quantile))
