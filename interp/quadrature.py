"""Points and weights for integrals from 0 to 1."""

from __future__ import annotations

import numpy as np

from lab.errors import LabError

RULES = ("gauss", "midpoint", "left")


def nodes(steps: int, rule: str = "gauss") -> list[tuple[float, float]]:
    """`steps` points in (0, 1) with weights that sum to one.

    "gauss" is Gauss-Legendre, exact for polynomials of degree 2 * steps - 1; "midpoint" and "left" are Riemann sums
    (errors of order 1 / steps² and 1 / steps).
    """
    if rule not in RULES:
        raise LabError(f"There is no rule called {rule!r}; choose one of {', '.join(RULES)}.")
    if steps < 1:
        raise LabError(f"An integral needs at least one step; got {steps}.")
    if rule == "gauss":
        x, w = np.polynomial.legendre.leggauss(steps)
        return list(zip(((x + 1) / 2).tolist(), (w / 2).tolist()))
    shift = 0.5 if rule == "midpoint" else 0.0
    return [((i + shift) / steps, 1 / steps) for i in range(steps)]
