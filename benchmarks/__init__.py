"""The side-by-side benchmark: what a GRPO step costs here and in its peers, as ratios of one run on one machine.

Every arm is a process of its own, so none pays for another's memory or settings. The arms of a workload are alive
together, warmed up once, and then asked in turn: one repeat of each, then the next repeat.
"""
