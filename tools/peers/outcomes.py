"""Outcomes of a suite's cases, and the unexpected ones."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# One run of a suite: the error of each case, or None if it passed.
Run = dict[str, str | None]


class BrokenSuiteError(Exception):
    """A suite ran, and its output is not valid."""


@dataclass(frozen=True)
class Outcomes:
    """All runs of one suite, by stack."""

    suite: str
    versions: dict[str, str]
    runs: dict[str, list[Run]]

    def cases(self) -> list[str]:
        """The names, in order."""
        return sorted({case for runs in self.runs.values() for run in runs for case in run})

    def passed(self, stack: str) -> list[str]:
        """Cases that passed in every run."""
        return [case for case in self.cases() if not self.failures(stack, case)]

    def failures(self, stack: str, case: str) -> list[str]:
        """The error of a case in each run where it failed. A case that did not run has failed."""
        reasons = [run.get(case, "has no result") for run in self.runs[stack]]
        return [reason for reason in reasons if reason is not None]

    def always_fails(self, stack: str, case: str) -> bool:
        return len(self.failures(stack, case)) == len(self.runs[stack])

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


def judge(outcomes: Outcomes, stack: str, known: Mapping[str, str]) -> Iterator[str]:
    """Differences from the known failures: one line each."""
    cases = outcomes.cases()
    if not cases:
        yield "has no cases"
    for case in cases:
        reasons = outcomes.failures(stack, case)
        if reasons and case not in known:
            yield f"{case}: failed: {reasons[0]}"
        elif not reasons and case in known:
            yield f"{case}: passed, but is listed as a known failure"
    for case in known:
        if case not in cases:
            yield f"{case}: is listed as a known failure, but does not exist"
