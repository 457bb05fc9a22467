"""A24: choice of a policy from a LoadBalancingConfig list."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from proxyless.base import ValidationErrors
from proxyless.lb import Helper, Policy, PolicyConfig, PolicyRegistry, parse_policy_list


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A kind of policy that accepts any config without the key "bad"."""

    name: str

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        if "bad" in json:
            with errors.field("bad"):
                errors.add("is not good")
        return dict(json)

    def create(self, helper: Helper) -> Policy:
        raise AssertionError("parsing creates nothing")


ONE, TWO = NamedPolicy("one"), NamedPolicy("two")
REGISTRY = PolicyRegistry([ONE, TWO])


def parse(json: object) -> PolicyConfig:
    errors = ValidationErrors()
    config = parse_policy_list(json, errors, REGISTRY)
    assert str(errors) == "[]"
    assert config is not None
    return config


def errors_of(json: object) -> str:
    errors = ValidationErrors()
    with errors.field("loadBalancingConfig"):
        parse_policy_list(json, errors, REGISTRY)
    assert not errors.ok
    return str(errors)


@pytest.mark.spec("REG-01")
def test_first_registered_policy_is_chosen() -> None:
    config = parse([{"newer": {"x": 1}}, {"two": {"y": 2}}, {"one": {"z": 3}}])
    assert config == PolicyConfig(TWO, {"y": 2})
    assert config.name == "two"


@pytest.mark.spec("REG-01")
def test_error_names_all_policies_when_none_is_registered() -> None:
    assert errors_of([{"newer": {}}, {"newest": {}}]) == (
        "[field:loadBalancingConfig error:No known policies in list: newer newest]"
    )


@pytest.mark.spec("REG-01")
def test_names_are_case_sensitive() -> None:
    assert "No known policies in list: One TWO" in errors_of([{"One": {}}, {"TWO": {}}])
    assert parse([{"One": {}}, {"two": {}}]).name == "two"


def test_empty_list_is_an_error() -> None:
    assert errors_of([]) == "[field:loadBalancingConfig error:No known policies in list:]"


@pytest.mark.spec("REG-01")
@pytest.mark.parametrize(
    ("json", "error"),
    [
        (None, " error:is null, wanted a list of policies"),
        ({"one": {}}, " error:is an object, wanted a list of policies"),
        ("one", " error:is a string, wanted a list of policies"),
        (["one"], "[0] error:is a string, wanted an object"),
        ([["one"]], "[0] error:is a list, wanted an object"),
        ([True], "[0] error:is a boolean, wanted an object"),
        ([1.5], "[0] error:is a number, wanted an object"),
        ([{}], "[0] error:has 0 keys, wanted one: the name of a policy"),
        ([{"one": {}, "two": {}}], "[0] error:has 2 keys, wanted one: the name of a policy"),
        ([{"one": []}], "[0].one error:is a list, wanted an object"),
        ([{"newer": 5}, {"one": {}}], "[0].newer error:is a number, wanted an object"),
        ([{"one": {}}, {}], "[1] error:has 0 keys, wanted one: the name of a policy"),
    ],
)
def test_malformed_entry_is_an_error(json: object, error: str) -> None:
    assert errors_of(json) == f"[field:loadBalancingConfig{error}]"


def test_errors_inside_the_chosen_config_have_its_path() -> None:
    assert errors_of([{"newer": {}}, {"one": {"bad": 1}}]) == (
        "[field:loadBalancingConfig[1].one.bad error:is not good]"
    )


def test_configs_of_other_policies_are_not_validated() -> None:
    assert parse([{"newer": {"bad": 1}}, {"one": {}}, {"two": {"bad": 1}}]).factory is ONE


def test_all_errors_are_collected() -> None:
    text = errors_of([5, {"newer": {}}, {}, {"one": {"bad": 1}}])
    assert [place in text for place in ("[0]", "[2]", "[3].one.bad")] == [True] * 3
    assert "No known policies" not in text
