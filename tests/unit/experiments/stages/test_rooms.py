from __future__ import annotations

from experiments.stages.code_hash import changed_rooms, code_hashes, room_of, targets, versions

CONFIG = {
    "module": {"_target_": "lightning_modules.warm_start.WarmStart", "policy": {"_target_": "lightning.Trainer"}},
    "parts": [{"_target_": "contrastive_reasoning.losses.BinaryNCE", "temperature": 1.0}],
}


def test_finds_our_targets_at_any_depth() -> None:
    found = ["contrastive_reasoning.losses.BinaryNCE", "lightning_modules.warm_start.WarmStart"]
    assert sorted(targets(CONFIG)) == found


def test_the_room_of_a_target() -> None:
    assert room_of("contrastive_reasoning.losses.info_nce.InfoNCE") == "contrastive_reasoning.losses"
    assert room_of("datamodules.plays.Plays") == "datamodules"


def test_versions_come_from_the_nearest_module_that_states_one() -> None:
    assert versions(CONFIG) == {"lightning_modules.warm_start": 1, "contrastive_reasoning.losses": 1}


def test_a_changed_room_is_named() -> None:
    then = code_hashes(CONFIG)
    assert {"lightning_modules", "contrastive_reasoning.losses"} <= set(then)
    assert changed_rooms(CONFIG, then) == []
    assert changed_rooms(CONFIG, {**then, "lightning_modules": "other"}) == ["lightning_modules"]


def test_so_is_one_that_is_no_target_and_is_imported_by_one_that_is() -> None:
    """Gradients are exchanged by ``ranks``, which nothing in conf/ names."""
    losses = {"_target_": "contrastive_reasoning.losses.BinaryNCE"}
    assert set(code_hashes(losses)) == {"contrastive_reasoning.losses"}
    then = code_hashes(CONFIG)
    assert changed_rooms(CONFIG, {**then, "contrastive_reasoning.distributed": "other"}) == [
        "contrastive_reasoning.distributed"
    ]


def test_of_a_room_that_was_not_recorded_nothing_is_known() -> None:
    then = code_hashes(CONFIG)
    older = {room: code for room, code in then.items() if room != "contrastive_reasoning.distributed"}
    assert changed_rooms(CONFIG, older) == []
    assert changed_rooms(CONFIG, {}) == list(then), "where nothing was recorded nothing is trusted"


def test_how_progress_looks_changes_no_result() -> None:
    assert "contrastive_reasoning.progress" not in code_hashes({"_target_": "callbacks.progress.Progress"})
