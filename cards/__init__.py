"""Templates of cards and datasheets, installed as ``feda4fair.cards``."""
