"""Unit tests of proxyless.lb.policies.priority.config."""

from collections.abc import Mapping

import pytest

from proxyless.base import ValidationErrors
from proxyless.lb import PolicyRegistry
from proxyless.lb.policies.pick_first import PickFirstFactory
from proxyless.lb.policies.priority.config import PriorityConfig, parse_config

REGISTRY = PolicyRegistry([PickFirstFactory()])
PICK_FIRST: Mapping[str, object] = {"config": [{"pick_first": {}}]}


def parse(json: Mapping[str, object]) -> tuple[PriorityConfig, str]:
    errors = ValidationErrors()
    return parse_config(json, errors, REGISTRY), str(errors)


def test_parser_reports_all_errors() -> None:
    _, text = parse({"children": {"a": 1, "b": PICK_FIRST, "c": {}}, "priorities": ["a", "x", 2]})
    assert text == (
        '[field:children["a"] error:is 1, wanted an object; '
        'field:children["c"].config error:is missing, wanted a list of policies; '
        "field:priorities[1] error:is 'x', wanted the name of one of the children; "
        "field:priorities[2] error:is 2, wanted a string]"
    )


@pytest.mark.parametrize("odd", [None, True, 1.5, "x", [None], {"x": 1}])
@pytest.mark.parametrize("where", ["children", "priorities", "child", "config", "flag"])
def test_parser_adds_errors_for_odd_values(where: str, odd: object) -> None:
    child = {**PICK_FIRST, "config": odd} if where == "config" else dict(PICK_FIRST)
    if where == "flag":
        child["ignore_reresolution_requests"] = odd
    json: dict[str, object] = {"children": {"a": child}, "priorities": ["a"]}
    if where == "child":
        json["children"] = {"a": odd}
    elif where in json:
        json[where] = odd
    _, text = parse(json)
    # A field that is null counts as absent.
    is_valid = (where == "flag" and odd in (None, True)) or (where == "priorities" and odd is None)
    assert (text == "[]") == is_valid


@pytest.mark.parametrize("name", ["ignore_reresolution_requests", "ignoreReresolutionRequests"])
def test_flag_is_read_by_either_spelling(name: str) -> None:
    config, text = parse({"children": {"a": {**PICK_FIRST, name: True}}})
    assert text == "[]"
    assert config.children["a"].ignore_reresolution_requests
