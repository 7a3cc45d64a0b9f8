"""DOOR: transitions, one kind a file: how the probability of the next state depends on the present one, and on inputs.

To add one, write a file here, or a class anywhere in your own code: ``rarehmm.engine.contracts.transition`` has the
contract, and ``check_transition`` checks a transition against it.
"""
