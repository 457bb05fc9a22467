"""Check of YAML, JSON and TOML blocks of a page.

A block parses. The linter finds no error in resources, a bootstrap is valid, and entry points are
in groups that the package loads.
"""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import yaml

from proxyless.assembly import Registries
from proxyless.base import Status, ValidationErrors
from proxyless.controlplane.documents import parse_documents
from proxyless.controlplane.short_form import is_short_form
from proxyless.entry_points import FILTERS, POLICIES, RESOLVERS
from proxyless.observe import LintContext, Severity, lint_message
from proxyless.xds.bootstrap import load_bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GROUPS = (POLICIES, RESOLVERS, FILTERS)


def problem_in(language: str, text: str) -> str:
    """The error of a block; empty if it is valid."""
    try:
        return _CHECKS[language](text)
    except (yaml.YAMLError, ValueError) as error:
        return str(error)


def _check_yaml(text: str) -> str:
    return _check_documents(list(yaml.safe_load_all(text)), text, is_json=False)


def _check_json(text: str) -> str:
    return _check_documents([json.loads(text)], text, is_json=True)


def _check_documents(documents: list[Any], text: str, *, is_json: bool) -> str:
    if any(_is_resources(each) for each in documents):
        return _check_resources(text, is_json=is_json)
    if any(isinstance(each, dict) and "xds_servers" in each for each in documents):
        [bootstrap] = documents
        found = load_bootstrap(bootstrap, {})
        return found.details if isinstance(found, Status) else ""
    return ""


def _is_resources(document: Any) -> bool:  # noqa: ANN401 - any YAML value
    if isinstance(document, list):
        return any(map(_is_resources, document))
    if is_short_form(document):
        return True
    return isinstance(document, dict) and ("@type" in document or "resources" in document)


def _check_resources(text: str, *, is_json: bool) -> str:
    errors = ValidationErrors()
    resources = parse_documents(text, errors, is_json=is_json)
    if not errors.ok:
        return str(errors)
    known = Registries()
    context = LintContext(known.policies, known.filters)
    findings = [
        f for _, each in resources for f in lint_message(each.message(), context, frozenset())
    ]
    return "; ".join(f"{f.path}: {f.text}" for f in findings if f.severity is Severity.ERROR)


def _check_toml(text: str) -> str:
    project: Mapping[str, Any] = tomllib.loads(text).get("project", {})
    unknown = [name for name in project.get("entry-points", {}) if name not in GROUPS]
    return f"entry points {unknown}, wanted {GROUPS}" if unknown else ""


_CHECKS: dict[str, Callable[[str], str]] = {
    "yaml": _check_yaml,
    "json": _check_json,
    "toml": _check_toml,
}
LANGUAGES = frozenset(_CHECKS)
