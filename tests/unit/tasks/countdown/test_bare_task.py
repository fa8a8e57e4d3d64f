from __future__ import annotations

from contrastive_reasoning.tasks.countdown import BareCountdownTask, CountdownTask, search_trace

SIZES = {"counts": [3], "number_range": [1, 20], "target_range": [10, 50], "max_search_lines": None}
SPLITS = {"train_problems": 30, "validation_problems": 10, "test_problems": 10}
SOURCES = {"style": "longproc", "train": "generated", "test": "generated", "longproc_dir": None, "seed": 0}


def test_a_search_is_asked_for_in_one_line() -> None:
    task = BareCountdownTask(**SIZES, **SPLITS, **SOURCES)  # pyright: ignore[reportArgumentType]
    problem = task.problem((12, 6, 3), 21)
    assert problem.prompt == "12 6 3 = 21\n"
    assert task.verify(problem, search_trace((12, 6, 3), 21).text).correct
    assert task.verify(problem, "12+6=18;18+3=21").status == "unparsed"


def test_the_problems_are_those_of_the_worded_task() -> None:
    bare = BareCountdownTask(**SIZES, **SPLITS, **SOURCES)  # pyright: ignore[reportArgumentType]
    worded = CountdownTask(**SIZES, **SPLITS, **SOURCES)  # pyright: ignore[reportArgumentType]
    for split in ("train", "validation", "test"):
        ours, theirs = bare.problems(split), worded.problems(split)
        assert [p.id for p in ours] == [p.id for p in theirs]
        assert all(len(p.prompt) < 20 < 3000 < len(q.prompt) for p, q in zip(ours, theirs, strict=True))
