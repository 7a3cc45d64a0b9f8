"""Paper: what it takes to repeat the experiments of Ou et al."""
