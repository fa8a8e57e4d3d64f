"""The share of vowels, by hand."""

from contrastive_reasoning.rewards.vowels import vowel_share


def test_vowels_are_counted_per_character() -> None:
    assert [vowel_share(text) for text in ("", "xyz", "aa", "true")] == [0, 0, 1, 0.5]
