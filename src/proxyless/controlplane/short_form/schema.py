"""Validator of the short form: checks a document against `schema.json`, with errors by path.

It supports only the keywords of JSON Schema that the file uses, in the forms that occur there. The
`title` of a schema is the noun phrase for error texts.
"""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from proxyless.controlplane.proto_json import describe_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxyless.base import ValidationErrors

Schema: TypeAlias = "Mapping[str, Any]"

_DEFINITIONS: Final = "#/$defs/"
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


@cache
def short_form_schema() -> Schema:
    """The JSON Schema of a document in the short form."""
    text = (files(__package__) / "schema.json").read_text(encoding="utf-8")
    schema: Schema = json.loads(text)
    return schema


def check_document(document: object, errors: ValidationErrors) -> None:
    """Add an error for each value that the schema of the short form does not allow."""
    SchemaChecker(short_form_schema(), errors).check(document)


class SchemaChecker:
    """Checks values against one schema file and its definitions."""

    def __init__(self, root: Schema, errors: ValidationErrors) -> None:
        self._root: Final = root
        self._errors: Final = errors

    def check(self, value: object) -> None:
        self._check(value, self._root)

    def _check(self, value: object, schema: Schema) -> None:
        schema = self._resolve(schema)
        if not _has_type(value, schema) or not _is_allowed(value, schema):
            self._errors.add(f"is {describe_value(value)}, wanted {_describe(schema)}")
            return
        if isinstance(value, dict):
            self._check_object(value, schema)
        elif isinstance(value, list):
            self._check_array(value, schema)
        self._check_alternatives(value, schema)

    def _resolve(self, schema: Schema) -> Schema:
        reference = schema.get("$ref")
        if reference is None:
            return schema
        found: Schema = self._root["$defs"][reference.removeprefix(_DEFINITIONS)]
        return self._resolve(found)

    def _check_array(self, value: list[Any], schema: Schema) -> None:
        if len(value) < schema.get("minItems", 0):
            self._errors.add(f"is an empty list, wanted {_describe(schema)}")
        if "items" not in schema:
            return
        for index, item in enumerate(value):
            with self._errors.index(index):
                self._check(item, schema["items"])

    def _check_object(self, value: dict[Any, Any], schema: Schema) -> None:
        known = schema.get("properties", {})
        other = schema.get("additionalProperties", True)
        for key, item in value.items():
            if not isinstance(key, str):
                # YAML reads the keys `on`, `off`, `yes` and `no` as booleans.
                self._errors.add(
                    f"has the key {describe_value(key)}, wanted a text: put it in quotes"
                )
            elif not _is_allowed_text(key, schema.get("propertyNames", {})):
                self._errors.add(f"has the key {describe_value(key)}, wanted a name")
            elif key in known:
                with self._errors.field(key):
                    self._check(item, known[key])
            elif other is False:
                with self._errors.field(key):
                    self._errors.add(_describe_unknown(key, list(known)))
            elif other is not True:
                with self._errors.key(key):
                    self._check(item, other)
        self._check_presence(value, schema)

    def _check_presence(self, value: dict[Any, Any], schema: Schema) -> None:
        if len(value) < schema.get("minProperties", 0):
            self._errors.add(f"is empty, wanted {_describe(schema)}")
        if len(value) > schema.get("maxProperties", len(value)):
            self._errors.add(f"has {len(value)} keys, wanted {_describe(schema)}")
        for key in schema.get("required", ()):
            if key not in value:
                self._errors.add(f"has no {key!r}")
        for key, needed in schema.get("dependentRequired", {}).items():
            for missing in (each for each in needed if key in value and each not in value):
                self._errors.add(f"has {key!r} and no {missing!r}")
        for each in schema.get("allOf", ()):
            first, second = each["not"]["required"]
            if first in value and second in value:
                with self._errors.field(second):
                    self._errors.add(f"is set beside {first!r}, wanted one of them")

    def _check_alternatives(self, value: object, schema: Schema) -> None:
        alternatives = [self._resolve(each) for each in schema.get("anyOf", ())]
        if not alternatives:
            return
        fitting = [
            each for each in alternatives if _has_type(value, each) and _has_keys(value, each)
        ]
        if not fitting:
            keys = [" and ".join(map(repr, each.get("required", ()))) for each in alternatives]
            if isinstance(value, dict) and all(keys):
                self._errors.add(f"wanted {', or '.join(keys)}")
            else:
                self._errors.add(f"is {describe_value(value)}, wanted {_describe(schema)}")
        elif "required" not in fitting[0] or "properties" in fitting[0]:
            self._check(value, fitting[0])


def _has_type(value: object, schema: Schema) -> bool:
    wanted = schema.get("type", ())
    if "enum" in schema and not wanted:
        wanted = "string"
    names = [wanted] if isinstance(wanted, str) else wanted
    if isinstance(value, bool):
        return not names or "boolean" in names
    return not names or any(isinstance(value, _TYPES[name]) for name in names)


def _has_keys(value: object, schema: Schema) -> bool:
    is_condition = "required" in schema and "properties" not in schema
    return not is_condition or (isinstance(value, dict) and value.keys() >= set(schema["required"]))


def _is_allowed(value: object, schema: Schema) -> bool:
    """Whether a basic value is allowed; keywords about other types do not count."""
    if "const" in schema:
        return value is schema["const"] or (type(value), value) == (
            type(schema["const"]),
            schema["const"],
        )
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        return _is_allowed_text(value, schema)
    if isinstance(value, int | float) and not isinstance(value, bool):
        # NaN is not between any limits.
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        return bool(low <= value <= high)
    return True


def _is_allowed_text(value: str, schema: Schema) -> bool:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        return False
    # Patterns are anchored. `$` alone would allow a line break at the end.
    return "pattern" not in schema or re.fullmatch(schema["pattern"], value) is not None


def _describe(schema: Schema) -> str:
    title = str(schema.get("title", "another value"))
    if "enum" in schema:
        return f"{title}: {', '.join(map(str, schema['enum']))}"
    return title


def _describe_unknown(key: str, known: Sequence[str]) -> str:
    nearest = get_close_matches(key, known, 1)
    if nearest:
        return f"is not known; the nearest key is {nearest[0]!r}"
    return f"is not known, wanted one of {', '.join(known)}"
