"""Many problem sets of one format at once, from the files of one folder: a name and a file for each."""

from __future__ import annotations

from collections.abc import Mapping

from contrastive_reasoning.tasks.answer_task import AnswerTask, VerifyMany
from contrastive_reasoning.tasks.formats import Format
from contrastive_reasoning.tasks.read_set import Rows


def problem_sets(
    *,
    path: str | None,
    rows: Rows,
    format: Format,
    on_bad: str,
    verifier: VerifyMany | None,
    answers: Mapping[str, str],
    choices: Mapping[str, str],
) -> dict[str, AnswerTask]:
    """A task for each set, whose rows are all test problems. Nothing is read.

    Args:
        path: the folder, or the address below which the files lie; None: reading refuses, in a sentence.
        rows: how a file is read; each set reads its own.
        format: how problems stand in rows, in every file.
        on_bad: what to do with rows that cannot be posed or scored.
        verifier: judges many completions at once; None: in this process.
        answers: name → file of the sets whose gold is an answer.
        choices: name → file of the sets whose gold is a letter.

    Raises:
        ValueError: for a name that is given twice.
    """
    if both := sorted(answers.keys() & choices.keys()):
        raise ValueError(f"{', '.join(both)}: named among the answers and among the choices")
    judges = {name: "answer" for name in answers} | {name: "choice" for name in choices}
    return {
        name: AnswerTask(
            name=name,
            train=None,
            validation=None,
            test=rows,
            path=None if path is None else f"{path.rstrip('/')}/{file}",
            format=format,
            judge=judges[name],
            on_bad=on_bad,
            train_problems=None,
            validation_problems=0,
            test_problems=0,
            verifier=verifier,
        )
        for name, file in (*answers.items(), *choices.items())
    }
