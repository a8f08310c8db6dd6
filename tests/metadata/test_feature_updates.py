"""Levels of features: what may be asked for, with Kafka's answers."""

from __future__ import annotations

import pytest

from headrace.errors import Error
from headrace.metadata.delta import Delta
from headrace.metadata.feature_updates import update_features
from headrace.metadata.features import METADATA_VERSION, SUPPORTED
from headrace.metadata.image import Image
from headrace.protocol import messages as m

Update = m.UpdateFeaturesRequest.FeatureUpdateKey
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def image(features: dict[str, int], broker_knows: dict[str, tuple[int, int]] | None = None) -> Image:
    feature = m.RegisterBrokerRecord.BrokerFeature
    known = dict(SUPPORTED) if broker_knows is None else broker_knows
    delta = Delta(Image())
    for name, level in features.items():
        delta.replay(m.FeatureLevelRecord(name=name, feature_level=level))
    supported = [
        feature(name=name, min_supported_version=least, max_supported_version=most)
        for name, (least, most) in known.items()
    ]
    delta.replay(m.RegisterBrokerRecord(broker_id=1, features=supported))
    return delta.image(0, 1)


def updated(before: Image, *updates: Update, validate_only: bool = False) -> tuple[Error, dict[str, int]]:
    request = m.UpdateFeaturesRequest(feature_updates=list(updates), validate_only=validate_only)
    records, response = update_features(before, request)
    delta = Delta(before)
    for record, _ in records:
        delta.replay(record)
    return Error.of(response.error_code), dict(delta.image(1, 1).features)


@pytest.mark.parametrize(
    ("level", "upgrade_type", "error"),
    [
        (29, UPGRADE, Error.NONE),
        (29, SAFE, Error.NONE),
        (25, UPGRADE, Error.INVALID_UPDATE_VERSION),
        (25, SAFE, Error.NONE),
        (23, UNSAFE, Error.NONE),
        (22, SAFE, Error.INVALID_UPDATE_VERSION),
        (22, UNSAFE, Error.INVALID_UPDATE_VERSION),
        (30, UPGRADE, Error.INVALID_UPDATE_VERSION),
        (6, SAFE, Error.INVALID_UPDATE_VERSION),
        (0, SAFE, Error.INVALID_UPDATE_VERSION),
        (-1, UPGRADE, Error.INVALID_UPDATE_VERSION),
        (29, 9, Error.INVALID_UPDATE_VERSION),
    ],
)
def test_the_version_of_metadata(level: int, upgrade_type: int, error: Error) -> None:
    before = image({METADATA_VERSION: 29})
    found = updated(before, Update(feature=METADATA_VERSION, max_version_level=level, upgrade_type=upgrade_type))
    assert found == (error, {METADATA_VERSION: 29 if error else level})


@pytest.mark.parametrize(
    ("level", "upgrade_type", "error"),
    [
        (1, UPGRADE, Error.NONE),
        (1, SAFE, Error.NONE),
        (0, SAFE, Error.INVALID_UPDATE_VERSION),
        (0, UNSAFE, Error.INVALID_UPDATE_VERSION),
        (2, UPGRADE, Error.INVALID_UPDATE_VERSION),
    ],
)
def test_the_version_of_the_quorum_stays_what_it_is(level: int, upgrade_type: int, error: Error) -> None:
    """As Kafka 4.3 answers where voters have directory ids."""
    before = image({METADATA_VERSION: 29})
    update = Update(feature="kraft.version", max_version_level=level, upgrade_type=upgrade_type)
    assert updated(before, update) == (error, {METADATA_VERSION: 29})


def test_an_upgrade_to_what_every_node_knows() -> None:
    up = Update(feature=METADATA_VERSION, max_version_level=29)
    assert updated(image({METADATA_VERSION: 25}), up) == (Error.NONE, {METADATA_VERSION: 29})
    old = image({METADATA_VERSION: 25}, {METADATA_VERSION: (7, 25)})
    assert updated(old, up) == (Error.INVALID_UPDATE_VERSION, {METADATA_VERSION: 25})
    down = Update(feature=METADATA_VERSION, max_version_level=25, upgrade_type=SAFE)
    assert updated(image({METADATA_VERSION: 20}), down)[0] is Error.INVALID_UPDATE_VERSION


def test_what_is_only_validated_is_not_done() -> None:
    before = image({METADATA_VERSION: 29})
    down = Update(feature=METADATA_VERSION, max_version_level=25, upgrade_type=SAFE)
    assert updated(before, down, validate_only=True) == (Error.NONE, {METADATA_VERSION: 29})


def test_all_of_a_request_or_nothing() -> None:
    before = image({METADATA_VERSION: 29})
    down = Update(feature=METADATA_VERSION, max_version_level=25, upgrade_type=SAFE)
    unknown = Update(feature="none", max_version_level=0)
    assert updated(before, down, unknown) == (Error.INVALID_UPDATE_VERSION, {METADATA_VERSION: 29})


def test_the_first_version_of_the_api_had_another_word_for_a_downgrade() -> None:
    down = Update(feature=METADATA_VERSION, max_version_level=25, allow_downgrade=True)
    assert updated(image({METADATA_VERSION: 29}), down) == (Error.NONE, {METADATA_VERSION: 25})


def test_a_feature_is_switched_off_and_on_and_needs_others() -> None:
    before = image({METADATA_VERSION: 29, "group.version": 1})
    off = Update(feature="group.version", max_version_level=0, upgrade_type=SAFE)
    assert updated(before, off) == (Error.NONE, {METADATA_VERSION: 29})
    on = Update(feature="group.version", max_version_level=1)
    assert updated(image({METADATA_VERSION: 29}), on) == (Error.NONE, {METADATA_VERSION: 29, "group.version": 1})
    assert updated(image({METADATA_VERSION: 20}), on) == (Error.INVALID_UPDATE_VERSION, {METADATA_VERSION: 20})
    both = (Update(feature=METADATA_VERSION, max_version_level=29), on)
    assert updated(image({METADATA_VERSION: 20}), *both)[0] is Error.NONE
