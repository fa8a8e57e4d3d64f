from __future__ import annotations

from contrastive_reasoning.tasks.answer import check_golds, verify_choice


def test_lists_what_does_not_verify_itself() -> None:
    golds = ["7", r"so it is $\boxed{\frac12}$.", r"hence there are $\boxed{}$ primes", "True", "", r"\$2 \approx 2.0"]
    assert check_golds(golds) == [(2, "no gold answer"), (4, "no gold answer")]


def test_letters() -> None:
    assert check_golds(["A", "(b)", "AB"], verify=verify_choice) == [(2, "no gold letter")]
