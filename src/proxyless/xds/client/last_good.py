"""Last good config: resources of an earlier process, used until the control plane answers.

Accepted resources are saved when every watched one is answered, so a file has a whole config. A
client that starts uses them for resources without an answer: at once if all servers of their
authority are unreachable, after `WAIT_S` if these are silent. Such a resource still counts as not
cached (A71), so fallback servers and retries continue, and any answer replaces it. After the first
whole config from the control plane the saved one is not used any more.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxyless.base import one_line
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.runtime.work_queue import STEP_UNITS
from proxyless.xds.client.api import Decoded, ResourceStatus, SteppedResourceType
from proxyless.xds.client.config_file import SavedResource
from proxyless.xds.client.config_store import LOGGER
from proxyless.xds.error_texts import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from proxyless.runtime import Clock, StepsJob, Work
    from proxyless.runtime.offload import Offload
    from proxyless.runtime.work_queue import Steps
    from proxyless.xds.client.api import DecodeContext
    from proxyless.xds.client.cache import Entry, ResourceKey
    from proxyless.xds.client.collection import Collection

# Time to wait for a silent control plane.
WAIT_S: Final = 2.0
# The first config is saved after this time; others follow at least this far apart.
FIRST_SAVE_S: Final = 0.1
# A config is saved if its resources have been the same for this time, which is the last part of the
# delays above and below: a resource may name others, which are watched some turns later.
SETTLE_S: Final = 0.05
SAVE_INTERVAL_S: Final = 5.0
# One that could not be written is tried again after this time: the disk may have space then.
RETRY_INTERVAL_S: Final = 60.0
# An unchanged config is saved again after this time, or half of its maximum age.
REFRESH_INTERVAL_S: Final = 3_600.0


class Store(Protocol):
    """Storage of one client's resources. `read` and `write` block and do not raise."""

    # Older resources are not read.
    max_age_s: float

    def read(self) -> dict[ResourceKey, SavedResource]: ...
    def write(self, resources: Mapping[ResourceKey, SavedResource]) -> bool:
        """False if they may be written later."""

    def wall_time_s(self) -> float:
        """Unix time."""


class LastGoodOwner(Protocol):
    """The client."""

    def all_entries(self) -> Iterable[Entry]: ...
    def reachable_servers(self) -> list[tuple[str, bool]]: ...
    def saved_context(self, entry: Entry) -> DecodeContext:
        """Context in which a saved resource is decoded."""

    def on_saved(self, entry: Entry, resource: Any, saved: SavedResource) -> None:  # noqa: ANN401
        """Use the saved resource."""

    def on_nothing_saved(self, entry: Entry) -> None:
        """There is no saved resource for an entry for which `substitute` returned True."""


class LastGood:
    """Saved resources of one client: their use after its start, and their updates."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        work: Work,
        offload: Offload,
        *,
        keeps_unwatched: bool = False,
    ) -> None:
        # Fixed at construction. `keeps_unwatched`: the targets of a shared client come one by one,
        # so resources of those that have not come yet stay saved.
        self._store = store
        self._clock = clock
        self._work = work
        self._offload = offload
        self._keeps_unwatched = keeps_unwatched
        self._owner: LastGoodOwner
        # Until the first whole config.
        self._saved: dict[ResourceKey, SavedResource] = {}
        self._is_reading = True
        self._is_over = False
        self._is_used = False
        # Entries that wait for the file, and those that are being decoded.
        self._waiting: dict[Entry, None] = {}
        self._jobs: dict[Entry, StepsJob | None] = {}
        # Authorities whose server has answered, and the time to wait for the others.
        self._answered: set[str | None] = set()
        self._wait_timer: Timer = IDLE_TIMER
        self._is_wait_over = False
        # Saving.
        self._save_timer: Timer = IDLE_TIMER
        self._last_saved: dict[ResourceKey, bytes | Collection] = {}
        self._last_saved_at_s: float | None = None
        self._is_writing = False
        self._is_closed = False

    def start(self, owner: LastGoodOwner) -> None:
        self._owner = owner
        self._wait_timer = self._clock.call_later(WAIT_S, self._on_wait_over)
        self._offload(self._store.read, self._on_read)

    def close(self) -> None:
        """Idempotent."""
        self._is_closed = self._is_over = True
        self._wait_timer.cancel()
        self._save_timer.cancel()
        for job in self._jobs.values():
            if job is not None:
                job.cancel()
        self._jobs, self._waiting = {}, {}

    # Called by the client

    def substitute(self, entry: Entry) -> bool:
        """Whether a saved resource is, or may be, used for an entry without an answer.

        If so, `on_saved` or `on_nothing_saved` follows.
        """
        if self._is_over or entry.status is not ResourceStatus.REQUESTED or entry.has_resource:
            return False
        if self._is_reading:
            self._waiting[entry] = None
            return True
        if entry not in self._jobs:
            saved = self._saved.get(entry.key)
            if saved is None:
                return False
            self._jobs[entry] = None
            job = self._work.run_steps(self._use(entry, saved))
            if entry in self._jobs:
                self._jobs[entry] = job
        return True

    def on_new_entry(self, entry: Entry) -> None:
        if self._is_wait_over and entry.authority not in self._answered:
            self.substitute(entry)

    def on_reachable(self, authorities: Iterable[str | None]) -> None:
        """A server of these authorities sent a response."""
        self._answered.update(authorities)

    def on_answer(self) -> None:
        """The state of entries has changed."""
        delay_s = self._next_save_s()
        is_earlier = self._save_timer.due_s > self._clock.now_s() + delay_s - SETTLE_S
        if not self._is_writing and (is_earlier or not self._save_timer.pending):
            self._save_in(delay_s)

    # Use of saved resources

    def _on_read(self, saved: dict[ResourceKey, SavedResource]) -> None:
        if self._is_closed:
            return
        if not self._is_over or self._keeps_unwatched:
            self._saved = saved
        self._end_reading()
        if self._is_wait_over:
            self._substitute_unanswered()

    def _end_reading(self) -> None:
        self._is_reading = False
        waiting, self._waiting = self._waiting, {}
        for entry in waiting:
            # The watches may have ended since.
            if entry.watches and not self.substitute(entry):
                self._owner.on_nothing_saved(entry)
        # Nothing is saved until now: the contents of the file might have been needed.
        self.on_answer()

    def _on_wait_over(self) -> None:
        self._is_wait_over = True
        if self._is_reading:
            # A file system that hangs must not hold back the errors of the control plane.
            LOGGER.warning("%s: not read in %g s", self._store, WAIT_S)
            self._end_reading()
        self._substitute_unanswered()

    def _substitute_unanswered(self) -> None:
        for entry in list(self._owner.all_entries()):
            self.on_new_entry(entry)

    def _use(self, entry: Entry, saved: SavedResource) -> Steps[None]:
        try:
            decoded = yield from self._decode(entry, saved)
        except Exception as error:
            LOGGER.exception("%s: decoding raised", self._store)
            decoded = Decoded(entry.name, error=f"decoding raised {type(error).__name__}")
        self._jobs.pop(entry, None)
        if self._is_over or entry.status is not ResourceStatus.REQUESTED or not entry.watches:
            return
        if decoded.error:
            LOGGER.warning("%s: not used: %s", self._store, one_line(decoded.error))
            self._saved.pop(entry.key, None)
            self._owner.on_nothing_saved(entry)
            return
        if not self._is_used:
            self._is_used = True
            when = format_time(saved.saved_s)
            text = "%s: no xds server answers, started with the config of %s"
            LOGGER.warning(text, self._store, when)
        self._owner.on_saved(entry, decoded.resource, saved)

    def _decode(self, entry: Entry, saved: SavedResource) -> Steps[Decoded[Any]]:
        context = self._owner.saved_context(entry)
        if isinstance(entry.type, SteppedResourceType):
            return (yield from entry.type.decode_in_steps(saved.serialized, context))
        yield STEP_UNITS
        return entry.type.decode(saved.serialized, context)

    def _end_use(self) -> None:
        self._is_over = True
        self._wait_timer.cancel()
        if self._is_used:
            LOGGER.info("%s: not used any more, the control plane has answered", self._store)
        if not self._keeps_unwatched:
            self._saved = {}

    # Saving

    def _save_in(self, delay_s: float) -> None:
        self._save_timer.cancel()
        self._save_timer = self._clock.call_later(delay_s - SETTLE_S, self._prepare_save)

    def _next_save_s(self) -> float:
        if self._last_saved_at_s is None:
            return FIRST_SAVE_S
        past_s = self._clock.now_s() - self._last_saved_at_s
        return max(SAVE_INTERVAL_S - past_s, FIRST_SAVE_S)

    def _prepare_save(self) -> None:
        in_use = self._in_use()
        # Otherwise the next answer causes another call.
        if in_use and not self._is_reading:
            save = partial(self._save, in_use.keys())
            self._save_timer = self._clock.call_later(SETTLE_S, save)

    def _in_use(self) -> dict[ResourceKey, Entry]:
        """The entries with a resource; none if the control plane has not answered all of them."""
        entries = list(self._owner.all_entries())
        if not all(entry.is_settled for entry in entries):
            return {}
        return {entry.key: entry for entry in entries if entry.has_resource}

    def _save(self, prepared: Set[ResourceKey]) -> None:
        in_use = self._in_use()
        if in_use.keys() != prepared:
            self._prepare_save()
            return
        if not self._is_over:
            self._end_use()
        contents = {key: entry.collection or entry.serialized for key, entry in in_use.items()}
        if contents == self._last_saved and not self._is_refresh_due():
            self._save_in(self._refresh_interval_s())
            return
        now_s = self._store.wall_time_s()
        unwatched = {key: each for key, each in self._saved.items() if key not in in_use}
        # One that is kept although the control plane rejects or deletes it becomes no younger.
        about = {key: (entry.version, entry.saved_s or now_s) for key, entry in in_use.items()}
        self._last_saved, self._last_saved_at_s = contents, self._clock.now_s()
        self._is_writing = True
        self._offload(partial(self._write, unwatched, contents, about), self._on_written)

    def _write(
        self,
        unwatched: Mapping[ResourceKey, SavedResource],
        contents: Mapping[ResourceKey, bytes | Collection],
        about: Mapping[ResourceKey, tuple[str, float]],
    ) -> bool:
        """Write all resources. Runs outside the loop, because collections may be large."""
        saved = {
            key: SavedResource(
                about[key][0], each if isinstance(each, bytes) else each.encode(), about[key][1]
            )
            for key, each in contents.items()
        }
        return self._store.write({**unwatched, **saved})

    def _refresh_interval_s(self) -> float:
        return max(min(REFRESH_INTERVAL_S, self._store.max_age_s / 2), SAVE_INTERVAL_S)

    def _is_refresh_due(self) -> bool:
        assert self._last_saved_at_s is not None, "only after a save"
        # The age counts from the last time at which a server answered.
        if not any(is_ok for _, is_ok in self._owner.reachable_servers()):
            return False
        return self._clock.now_s() - self._last_saved_at_s >= self._refresh_interval_s()

    def _on_written(self, is_written: bool) -> None:
        self._is_writing = False
        if not is_written:
            self._last_saved = {}
        if not self._is_closed:
            # Changes since the start of this write are saved as well.
            self._save_in(SAVE_INTERVAL_S if is_written else RETRY_INTERVAL_S)
