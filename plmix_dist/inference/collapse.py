"""Components that lose all their rankings: seeded anew a few times, then dropped."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.errors import CollapsedComponentWarning
from plmix_dist.inference.state import EmState

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A component with less than this share of all rankings has collapsed.
SMALLEST_SHARE = 1e-6
_MOST_RESEEDS = 3


def collapsed_components(state: EmState) -> NDArray[np.int64]:
    """The components with next to no share."""
    if len(state.log_shares) == 1:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.exp(state.log_shares) < SMALLEST_SHARE)


def has_collapsed(state: EmState) -> bool:
    """Whether some component has next to no share."""
    return len(collapsed_components(state)) > 0


def mend_collapsed(
    state: EmState, events: list[dict[str, Any]], iteration: int, rng: np.random.Generator
) -> EmState | None:
    """The state to go on from where a component has collapsed, with the event noted; None where none has.

    A collapsed component is seeded anew near the largest one, whose share it halves. After a few times it is dropped.
    """
    collapsed = collapsed_components(state)
    if not len(collapsed):
        return None
    component = int(collapsed[0])
    n_reseeds = sum(event["action"] == "reseed" for event in events)
    action = "reseed" if n_reseeds < _MOST_RESEEDS else "drop"
    events.append({"iteration": iteration, "component": component, "action": action})
    warnings.warn(
        f"iteration {iteration}: component {component} lost all its rankings and was "
        f"{'seeded anew' if action == 'reseed' else 'dropped'}",
        CollapsedComponentWarning,
        stacklevel=2,
    )
    if action == "drop":
        keep = np.arange(len(state.log_shares)) != component
        shares = np.exp(state.log_shares[keep])
        return EmState(state.log_worths[keep], state.ghosts[keep], np.log(shares / shares.sum()))
    largest = int(np.argmax(state.log_shares))
    log_worths, ghosts, shares = state.log_worths.copy(), state.ghosts.copy(), np.exp(state.log_shares)
    log_worths[component] = log_worths[largest] + rng.standard_normal(log_worths.shape[1])
    log_worths[component] -= log_worths[component].mean()
    ghosts[component] = ghosts[largest]
    shares[component] = shares[largest] = shares[largest] / 2
    return EmState(log_worths, ghosts, np.log(shares / shares.sum()))
