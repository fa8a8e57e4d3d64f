"""A reward function as it is written for TRL: whole batches in, a list of numbers out."""


def ends_with_newline(completions, word, **kwargs) -> list[float | None]:
    """1 where a completion has come to the end of its line; None, not applicable, for words of five letters or less."""
    return [float(text.endswith("\n")) if len(one) > 5 else None for text, one in zip(completions, word, strict=True)]
