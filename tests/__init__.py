"""The tests, in rings: docs/testing.md says what each ring proves."""
