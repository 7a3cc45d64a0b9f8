"""DOOR: ways of choosing windows, one per file; ``rarehmm.engine.contracts.design`` says what a design must bring."""
