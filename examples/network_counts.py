"""Real-time alarms for bursts in counts per second.

The model is fitted to yesterday's counts.  Today, each count is one update, which uses the past but not the future; the
state of the stream is plain data that survives a restart.
"""

import json

import numpy as np

from rarehmm import RareHMM, Stream

rng = np.random.default_rng(3)


def day(attacks):
    rate = 5 + 2 * (np.arange(20_000) // 2_500 % 2)  # quiet and busy hours
    for begin in attacks:
        rate[begin : begin + 20] += 25
    return rng.poisson(rate).astype(float)


yesterday, today = day([4_000, 9_000, 15_500]), day([12_345])
hmm = RareHMM(3, emission="poisson").fit(yesterday)
attack = int(np.argmax(hmm.means_))

stream, alarms = None, []
for second, count in enumerate(today[:13_000]):
    if second == 12_000:  # simulate a restart
        stream = Stream.from_dict(json.loads(json.dumps(stream.to_dict())))
    stream = hmm.update(stream, count)
    if stream.probability[attack] > 0.9:
        alarms.append(second)
print(f"alarm at {alarms[0]}, {alarms[0] - 12_345} seconds after the attack began, for {len(alarms)} seconds")

assert attack in hmm.rare_states_
assert 0 <= alarms[0] - 12_345 <= 2
assert set(alarms) <= set(range(12_345, 12_367))
np.testing.assert_allclose(stream.probability, hmm.filter_proba(today[:13_000])[-1], atol=1e-9)
