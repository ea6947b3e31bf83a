"""The simulated world: the real coordinator and worker code in one interpreter, with virtual time and a seeded order.

Production never imports this package; tests and `scripts/sim` do.
"""
