"""Changes of the levels of features (UpdateFeatures, KIP-584 and KIP-1022): all of a request, or none. PURE."""

from __future__ import annotations

from enum import IntEnum

from headrace.errors import Error, Refused
from headrace.metadata.features import METADATA_CHANGES, METADATA_VERSION, QUORUM_VERSION, REQUIRED, SUPPORTED
from headrace.metadata.image import Image
from headrace.metadata.snapshot import Versioned
from headrace.protocol import messages as m
from headrace.raft.quorum import KRAFT_VERSION

DOES_NOT_KNOW = (0, 0)


class UpgradeType(IntEnum):
    """By Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(image: Image, request: m.UpdateFeaturesRequest) -> tuple[list[Versioned], m.UpdateFeaturesResponse]:
    after = {**image.features, **{update.feature: update.max_version_level for update in request.feature_updates}}
    response = m.UpdateFeaturesResponse(error_message=None)
    records: list[Versioned] = []
    for update in request.feature_updates:
        try:
            _check(image, update, after)
        except Refused as refused:
            text = f"No feature was updated, because of this one: {refused.text}"
            return [], m.UpdateFeaturesResponse(error_code=refused.error, error_message=text)
        response.results.append(
            m.UpdateFeaturesResponse.UpdatableFeatureResult(feature=update.feature, error_message=None)
        )
        if update.feature == QUORUM_VERSION:
            continue  # at the level that it has
        if update.max_version_level != image.features.get(update.feature, 0):
            record = m.FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
            records.append((record, 0))
    return [] if request.validate_only else records, response


def _check(image: Image, update: m.UpdateFeaturesRequest.FeatureUpdateKey, after: dict[str, int]) -> None:
    name, level = update.feature, update.max_version_level
    upgrade_type = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if upgrade_type not in list(UpgradeType):
        raise _invalid(f"An update of {name} has a type that is not known: {upgrade_type}.")
    if level < 0:
        raise _invalid(f"{name} can't be at level {level}: levels begin at 0.")
    if name == QUORUM_VERSION:
        _check_quorum(level)
        return
    if name not in SUPPORTED:
        raise _invalid(f"There is no feature {name}.")
    _check_support(image, name, level)
    now = image.features.get(name, 0)
    if level < now and upgrade_type == UpgradeType.UPGRADE:
        raise _invalid(f"{name} is at level {now}, and {level} would be a downgrade, which has to be asked for.")
    if level > now and upgrade_type != UpgradeType.UPGRADE:
        raise _invalid(f"{name} is at level {now}, and {level} would not be a downgrade.")
    if name == METADATA_VERSION and level < now:
        _check_downgrade(now, level, is_unsafe=upgrade_type == UpgradeType.UNSAFE_DOWNGRADE)
    for other, least in REQUIRED.get((name, level), {}).items():
        if after.get(other, 0) < least:
            raise _invalid(f"{name} at level {level} needs {other} at level {least}, not {after.get(other, 0)}.")


def _check_quorum(level: int) -> None:
    if level > KRAFT_VERSION:
        raise _invalid(f"This controller knows {QUORUM_VERSION} from 0 to {KRAFT_VERSION}, not {level}.")
    if level < KRAFT_VERSION:
        raise _invalid(f"{QUORUM_VERSION} is at level {KRAFT_VERSION}, and can't go back to {level}.")


def _check_support(image: Image, name: str, level: int) -> None:
    """Every node must know it, those that are away too: they would not be let back in."""
    nodes = [("This controller", SUPPORTED[name])]
    nodes += [(f"Broker {one.id}", one.features.get(name, DOES_NOT_KNOW)) for one in image.brokers.values()]
    nodes += [(f"Controller {one.id}", one.features.get(name, DOES_NOT_KNOW)) for one in image.controllers.values()]
    for who, (least, most) in nodes:
        if not least <= level <= most:
            raise _invalid(f"{who} knows {name} from {least} to {most}, not {level}.")


def _check_downgrade(now: int, level: int, *, is_unsafe: bool) -> None:
    if any(level < change <= now for change in METADATA_CHANGES):
        why = "and to lose metadata is not supported" if is_unsafe else "and metadata would be lost"
        raise _invalid(f"{METADATA_VERSION} can't go from {now} to {level}: records have changed in between, {why}.")


def _invalid(text: str) -> Refused:
    return Refused(Error.INVALID_UPDATE_VERSION, text)
