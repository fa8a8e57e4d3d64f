"""Which goals a batch of plays is asked about, and which of the pairs are positive, negative or unknown.

Goals come from the trajectories by hindsight (a value reached from each anchor) and from their problems (a target each,
reached or not: the dead ends with the problem's own target). Other trajectories' goals are the in-batch negatives.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from contrastive_reasoning.critics.base import NONE, Pairs


class EveryGoal:
    """Each goal of the batch stands once, and every anchor is asked about it: many positives, many certified dead ends.

    For losses that take any number of positives (binary NCE). A goal that an unexhausted anchor is not known to reach
    counts as an in-batch negative, its own problem's target excepted: nothing speaks against that one.
    """

    def __call__(
        self,
        hindsight: Int[ndarray, " A"],
        targets: Int[ndarray, " A"],
        reached: Bool[ndarray, "A V"],
        exhausted: Bool[ndarray, " A"],
    ) -> Pairs:
        goals = np.unique(np.concatenate([hindsight[hindsight != NONE], targets]))
        positive = reached[:, goals]
        own = goals[None] == targets[:, None]
        return Pairs(goals, positive, positive | exhausted[:, None] | ~own)


class OwnGoal:
    """Column i < A is anchor i's hindsight goal, its only positive; column A + i is its problem's own target.

    An anchor without a hindsight goal has no positive, and its column is nobody's candidate.

    For losses that take one positive a row (InfoNCE). Pairs with the same goal and pairs known to be reachable are no
    candidates; a problem's own target, from wherever it comes, counts only where the search certified a dead end.
    """

    def __call__(
        self,
        hindsight: Int[ndarray, " A"],
        targets: Int[ndarray, " A"],
        reached: Bool[ndarray, "A V"],
        exhausted: Bool[ndarray, " A"],
    ) -> Pairs:
        anchors = len(hindsight)
        goals = np.concatenate([hindsight, targets])
        positive = np.zeros((anchors, 2 * anchors), dtype=bool)
        positive[np.arange(anchors), np.arange(anchors)] = hindsight != NONE
        unreached = ~reached[:, goals] & (goals != NONE)
        unreached[:, anchors:] &= exhausted[:, None]
        unreached &= exhausted[:, None] | (goals[None] != targets[:, None])
        return Pairs(goals, positive, positive | unreached)
