"""The tests, in suites: docs/testing.md says what each suite proves."""
