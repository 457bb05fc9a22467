"""Snapshot: an immutable set of resources by type and name, with a version for each type.

The version of a type changes only with its resources. A new snapshot shares unchanged types with
the old one, so that comparing them is fast.

A snapshot is complete by default: it has every resource that another one refers to. A partial
snapshot is for tests of clients.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from proxyless.base import ValidationErrors
from proxyless.controlplane.resource import Resource, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from proxyless.controlplane.resource import Reference
    from proxyless.protos import Proto

Resources = MappingProxyType[str, Resource]

NO_RESOURCES: Final[Resources] = MappingProxyType({})
NO_VERSION: Final = "0"

_LAST_NUMBER: Final = re.compile(r"\d+\Z")


class Snapshot:
    """Resources by type and name. Made by `of`, `with_`, `without` and `replaced`."""

    __slots__ = ("_by_type", "_versions", "is_partial", "version")

    def __init__(
        self,
        by_type: Mapping[str, Resources],
        versions: Mapping[str, str],
        version: str,
        *,
        is_partial: bool,
        to_check: Iterable[Resource] | None = None,
    ) -> None:
        self._by_type: Final = by_type
        self._versions: Final = versions
        # The newest of the types' versions.
        self.version: Final = version
        self.is_partial: Final = is_partial
        if not is_partial:
            self.check(to_check).raise_if_any(f"snapshot {version!r}")

    @classmethod
    def of(
        cls, resources: Iterable[Proto | Resource], version: str = "1", *, partial: bool = False
    ) -> Snapshot:
        """A snapshot of these messages; ValueError if two have the same type and name.

        ValidationError if it is not partial and a reference has no resource.
        """
        by_type = _group(resources)
        versions = dict.fromkeys(by_type, version)
        return cls(by_type, versions, version, is_partial=partial)

    def with_(
        self, *resources: Proto | Resource, version: str | None = None, partial: bool | None = None
    ) -> Snapshot:
        """A snapshot with these resources added, or replaced by type and name."""
        by_type = dict(self._by_type)
        groups = _group(resources)
        for type_url, added in groups.items():
            by_type[type_url] = MappingProxyType({**self.resources(type_url), **added})
        # Nothing is removed, so in a complete snapshot only the new references are checked.
        added_only = (found for group in groups.values() for found in group.values())
        return self._replace(by_type, version, partial, None if self.is_partial else added_only)

    def without(
        self,
        type_url: str,
        *names: str,
        version: str | None = None,
        partial: bool | None = None,
    ) -> Snapshot:
        """A snapshot without these resources; KeyError if it has no such resource."""
        kept = dict(self.resources(type_url))
        for name in names:
            del kept[name]
        by_type = {**self._by_type, type_url: MappingProxyType(kept)}
        return self._replace(by_type, version, partial)

    def replaced(
        self,
        resources: Iterable[Proto | Resource],
        version: str | None = None,
        *,
        partial: bool | None = None,
    ) -> Snapshot:
        """A snapshot with only these resources; types without a change keep their version."""
        by_type: dict[str, Resources] = dict.fromkeys(self._by_type, NO_RESOURCES)
        return self._replace(by_type | _group(resources), version, partial)

    def _replace(
        self,
        by_type: dict[str, Resources],
        version: str | None,
        partial: bool | None,
        to_check: Iterable[Resource] | None = None,
    ) -> Snapshot:
        """Share equal types with this snapshot; give the others the new version."""
        new_version = _next_version(self.version) if version is None else version
        versions = dict(self._versions)
        for type_url, resources in by_type.items():
            before = self.resources(type_url)
            # `==` would compare a mapping with itself item by item.
            if resources is before or resources == before:
                by_type[type_url] = before
            else:
                versions[type_url] = new_version
        newest = new_version if versions != self._versions else self.version
        is_partial = self.is_partial if partial is None else partial
        return Snapshot(by_type, versions, newest, is_partial=is_partial, to_check=to_check)

    def resources(self, type_url: str) -> Resources:
        """By name; the same object as in the previous snapshot if the type has not changed."""
        return self._by_type.get(type_url, NO_RESOURCES)

    def version_of(self, type_url: str) -> str:
        """The version of the last snapshot that changed this type."""
        return self._versions.get(type_url, NO_VERSION)

    def get(self, type_url: str, name: str) -> Resource | None:
        return self.resources(type_url).get(name)

    @property
    def types(self) -> tuple[str, ...]:
        """The types that have resources."""
        return tuple(type_url for type_url, resources in self._by_type.items() if resources)

    def check(self, resources: Iterable[Resource] | None = None) -> ValidationErrors:
        """An error for each reference without a resource, of all resources or of these."""
        errors = ValidationErrors()
        for resource in self if resources is None else resources:
            for reference in self.find_dangling(resource):
                with (
                    errors.field(type_name(resource.type_url)),
                    errors.key(resource.name),
                    errors.field(reference.path),
                ):
                    errors.add(reference.missing_text)
        return errors

    def find_dangling(self, resource: Resource) -> Iterator[Reference]:
        """The references without a resource."""
        for reference in resource.references:
            if self.get(reference.type_url, reference.name) is None:
                yield reference

    def __iter__(self) -> Iterator[Resource]:
        for resources in self._by_type.values():
            yield from resources.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_type.values()))

    def __repr__(self) -> str:
        counts = (f"{type_name(url)}: {len(self.resources(url))}" for url in self.types)
        return f"<Snapshot {self.version!r} {', '.join(counts) or 'empty'}>"


def _group(resources: Iterable[Proto | Resource]) -> dict[str, Resources]:
    by_type: dict[str, dict[str, Resource]] = {}
    for given in resources:
        resource = given if isinstance(given, Resource) else Resource.of(given)
        named = by_type.setdefault(resource.type_url, {})
        if resource.name in named:
            raise ValueError(f"{resource} is there twice, wanted each name once")
        named[resource.name] = resource
    return {type_url: MappingProxyType(named) for type_url, named in by_type.items()}


def _next_version(version: str) -> str:
    """`1` becomes `2`, `v9` becomes `v10`, `blue` becomes `blue.1`."""
    number = _LAST_NUMBER.search(version)
    if number is None:
        return f"{version}.1"
    return f"{version[: number.start()]}{int(number[0]) + 1}"
