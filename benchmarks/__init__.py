"""The side-by-side benchmark: the cost of a GRPO step here and in other libraries, as ratios of one run on one machine.

Every arm is its own process, so that no arm is affected by another's memory or settings. The arms of a workload run at
the same time and are warmed up once. Then they alternate: one repeat of each arm, then the next repeat.
"""
