"""Is the first line of a completion the word of the problem, spelled backwards?"""

from contrastive_reasoning.tasks import Problem


def verify(problem: Problem, completion: str) -> bool | str:
    written = completion.strip().partition("\n")[0].strip()
    if not written:
        return "nothing is written"
    if written == problem.fields["word"]:
        return "spelled forwards"
    return written == problem.fields["word"][::-1]
