"""CrowS-Pairs: which sentence of a pair a model prefers."""
