"""JSON mapping of protobuf, for every field of the configs of all policies.

One table over all policies: 3, 3.0 and "3" are one integer; null is absent; other types are errors
that name the field.
"""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from proxyless import Registries
from proxyless.base import ValidationErrors

CHILD: Final[list[dict[str, dict[str, Any]]]] = [{"pick_first": {}}]
ABSENT: Final = object()
REGISTRY: Final = Registries().policies

# Policy, the config without the field, and the path of the field, joined by dots.
INTEGERS: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("least_request_experimental", {}, "choiceCount"),
    ("ring_hash_experimental", {"minRingSize": 1}, "maxRingSize"),
    ("ring_hash_experimental", {}, "minRingSize"),
    ("random_subsetting_experimental", {"childPolicy": CHILD}, "subsetSize"),
    (
        "weighted_target_experimental",
        {"targets": {"a": {"childPolicy": CHILD}}},
        "targets.a.weight",
    ),
    (
        "priority_experimental",
        {"children": {"a": {"config": CHILD}}, "priorities": ["a"]},
        "children.a.innerPriorities",
    ),
    ("outlier_detection_experimental", {"childPolicy": CHILD}, "maxEjectionPercent"),
    *(
        (
            "outlier_detection_experimental",
            {"childPolicy": CHILD, "successRateEjection": {}},
            f"successRateEjection.{field}",
        )
        for field in ("stdevFactor", "enforcementPercentage", "minimumHosts", "requestVolume")
    ),
    *(
        (
            "outlier_detection_experimental",
            {"childPolicy": CHILD, "failurePercentageEjection": {}},
            f"failurePercentageEjection.{field}",
        )
        for field in ("threshold", "enforcementPercentage", "minimumHosts", "requestVolume")
    ),
]
BOOLEANS: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("pick_first", {}, "shuffleAddressList"),
    ("weighted_round_robin", {}, "enableOobLoadReport"),
    (
        "priority_experimental",
        {"children": {"a": {"config": CHILD}}, "priorities": ["a"]},
        "children.a.ignoreReresolutionRequests",
    ),
    ("cds_experimental", {"cluster": "c"}, "isDynamic"),
]
NUMBERS: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("weighted_round_robin", {}, "errorUtilizationPenalty"),
]
REQUIRED: Final = {"subsetSize", "targets.a.weight"}


def with_field(config: Mapping[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy of the config with one more field."""
    first, _, rest = path.partition(".")
    if rest:
        return {**config, first: with_field(config[first], rest, value)}
    return dict(config) if value is ABSENT else {**config, first: value}


def parse(policy: str, config: Mapping[str, Any], path: str, value: object) -> tuple[object, str]:
    """The parsed config, and the errors; no text if there are none."""
    factory = REGISTRY.find(policy)
    assert factory is not None, policy
    errors = ValidationErrors()
    parsed = factory.parse_config(with_field(config, path, value), errors, REGISTRY)
    return parsed, "" if errors.ok else str(errors)


@pytest.mark.parametrize(("policy", "config", "path"), INTEGERS)
def test_integer_field_accepts_each_form_of_an_integer(
    policy: str, config: Mapping[str, Any], path: str
) -> None:
    expected, text = parse(policy, config, path, 3)
    # `text` is not empty where 3 itself is out of range, such as a maximum below the minimum.
    for value in (3, 3.0, "3"):
        assert parse(policy, config, path, value) == (expected, text)


@pytest.mark.parametrize("value", [3.5, "x", "3.5", True, [], {}])
@pytest.mark.parametrize(("policy", "config", "path"), INTEGERS)
def test_integer_field_rejects_other_values(
    policy: str, config: Mapping[str, Any], path: str, value: object
) -> None:
    _, text = parse(policy, config, path, value)
    assert f"{path.rpartition('.')[2]} error:is " in text
    assert "wanted an integer from " in text


@pytest.mark.parametrize(("policy", "config", "path"), [*INTEGERS, *BOOLEANS, *NUMBERS])
def test_null_counts_as_absent(policy: str, config: Mapping[str, Any], path: str) -> None:
    absent = parse(policy, config, path, ABSENT)
    assert parse(policy, config, path, None) == absent
    assert ("is missing" in absent[1]) == (path in REQUIRED)


@pytest.mark.parametrize("value", [3, 3.0, "3", 3.5, "x", "true", [], {}])
@pytest.mark.parametrize(("policy", "config", "path"), BOOLEANS)
def test_boolean_field_accepts_only_booleans(
    policy: str, config: Mapping[str, Any], path: str, value: object
) -> None:
    assert parse(policy, config, path, True)[1] == ""
    assert "wanted a boolean" in parse(policy, config, path, value)[1]


@pytest.mark.parametrize(("policy", "config", "path"), NUMBERS)
def test_number_field_accepts_each_form_of_a_number(
    policy: str, config: Mapping[str, Any], path: str
) -> None:
    assert len({parse(policy, config, path, value) for value in (3, 3.0, "3", "3.0", "3e0")}) == 1
    assert parse(policy, config, path, 3.5) == parse(policy, config, path, "3.5")
    others: list[object] = ["x", True, [], "inf", "nan", " 3"]
    for value in others:
        assert "wanted a number" in parse(policy, config, path, value)[1]


@pytest.mark.parametrize(("policy", "config", "path"), [*INTEGERS, *BOOLEANS, *NUMBERS])
def test_field_is_accepted_under_its_proto_name(
    policy: str, config: Mapping[str, Any], path: str
) -> None:
    is_boolean = any((policy, path) == (each[0], each[2]) for each in BOOLEANS)
    value: object = True if is_boolean else 3
    parent, dot, name = path.rpartition(".")
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    by_json_name, text = parse(policy, config, path, value)
    found, found_text = parse(policy, config, f"{parent}{dot}{snake}", value)
    assert (found, found_text) == (by_json_name, text)
