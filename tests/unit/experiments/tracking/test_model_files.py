"""Which policies travel to a tracker: small ones whole, large ones not at all."""

from __future__ import annotations

from pathlib import Path

from experiments.tracking.model_files import model_files


def policy(stage: Path) -> list[Path]:
    """2 MB in two files."""
    files = [stage / "policy" / "config.json", stage / "policy" / "model.safetensors"]
    files[0].parent.mkdir()
    for file in files:
        file.write_bytes(bytes(10**6))
    return files


def test_a_policy_up_to_the_limit_goes_whole(tmp_path: Path) -> None:
    files = policy(tmp_path)
    found = model_files(tmp_path, most_megabytes=2)
    assert found is not None
    assert (list(found.files), found.said) == (files, "policy/")


def test_a_larger_one_stays_and_it_is_said_where(tmp_path: Path) -> None:
    policy(tmp_path)
    found = model_files(tmp_path, most_megabytes=1.5)
    assert found is not None
    assert not found.files
    assert found.said == f"2.0 MB are more than logger.model_megabytes=1.5: {tmp_path}/policy"


def test_a_stage_without_a_policy_has_none(tmp_path: Path) -> None:
    assert model_files(tmp_path, most_megabytes=100) is None
