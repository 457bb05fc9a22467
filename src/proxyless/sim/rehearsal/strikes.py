"""How are the faults of a script done to a world?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import OK, Status
from proxyless.sim.rehearsal.script import ControlFault, ControlStrike, Fault, Strike

if TYPE_CHECKING:
    from proxyless.sim.backends import Backend
    from proxyless.sim.control import SimControlPlane
    from proxyless.sim.hosts import Host
    from proxyless.sim.world import World

# Who is gone is gone, in whatever way.
_GONE: Final = frozenset({Fault.KILL, Fault.STOP, Fault.LOSE_POWER})


class Striker:
    """Does them, and knows what lasts: a host that is cut twice is healed by one `heal`."""

    def __init__(self, world: World, control: SimControlPlane) -> None:
        # Fixed at construction.
        self._world = world
        self._control = control
        # What lasts, by the names of hosts.
        self._cut: set[str] = set()
        self._hung: set[str] = set()

    async def strike(self, strike: Strike, backend: Backend) -> None:  # noqa: C901 - a table
        """One endpoint."""
        match strike.fault:
            case Fault.KILL:
                await backend.kill()
            case Fault.STOP:
                await backend.stop()
            case Fault.LOSE_POWER:
                await backend.lose_power()
            case Fault.START:
                await backend.start()
            case Fault.HANG:
                self._hang(backend.host)
            case Fault.CUT:
                self._sever(backend.host)
            case Fault.THROTTLE:
                backend.host.throttle(strike.bytes_per_s, *self._clients())
            case Fault.SLOW:
                backend.delay_s = strike.delay_s
            case Fault.FAIL:
                backend.status = Status(strike.code, "failed on purpose")
            case Fault.HEAL:
                self._heal(backend, strike.undoes)
            case Fault.GOAWAY:
                backend.say_goaway()
            case Fault.RESET:
                backend.host.reset_connections()

    async def strike_control(self, strike: ControlStrike) -> None:
        """The control plane."""
        control = self._control
        match strike.fault:
            case ControlFault.STOP:
                await control.stop()
            case ControlFault.START:
                await control.start()
            case ControlFault.BREAK_STREAMS:
                control.break_streams()
            case ControlFault.CUT:
                self._sever(control.host)
            case ControlFault.HANG:
                self._hang(control.host)
            case ControlFault.DELAY:
                control.delay(strike.delay_s)
            case ControlFault.WITHHOLD:
                control.withhold(strike.type_url, *strike.names)
            case ControlFault.HEAL:
                self._heal_control(strike.undoes)

    def _heal(self, backend: Backend, fault: Fault | None) -> None:
        """Of one fault, or of all."""
        if fault in {None, Fault.SLOW}:
            backend.delay_s = 0.0
        if fault in {None, Fault.FAIL}:
            backend.status = OK
        if fault in {None, Fault.THROTTLE}:
            backend.host.throttle(None, *self._clients())
        if fault in {None, Fault.CUT}:
            self._join(backend.host)
        if fault in {None, Fault.HANG}:
            self._wake(backend.host)

    def _heal_control(self, fault: ControlFault | None) -> None:
        if fault not in {ControlFault.CUT, ControlFault.HANG}:
            self._control.release()
        if fault in {None, ControlFault.CUT}:
            self._join(self._control.host)
        if fault in {None, ControlFault.HANG}:
            self._wake(self._control.host)

    def _clients(self) -> list[Host]:
        return [client.host for client in self._world.clients.values()]

    def _sever(self, host: Host) -> None:
        if host.name not in self._cut:
            self._cut.add(host.name)
            host.cut(*self._clients())

    def _hang(self, host: Host) -> None:
        if host.name not in self._hung:
            self._hung.add(host.name)
            host.hang(*self._clients())

    def _join(self, host: Host) -> None:
        if host.name in self._cut:
            self._cut.remove(host.name)
            host.heal(*self._clients())

    def _wake(self, host: Host) -> None:
        if host.name in self._hung:
            self._hung.remove(host.name)
            host.wake(*self._clients())


class Lasting:
    """Whom each fault befell, and for whom it goes on. Driven by the stage."""

    def __init__(self) -> None:
        # By the path of the event.
        self._struck: dict[str, tuple[Fault, list[Backend]]] = {}

    def begin(self, path: str, fault: Fault, backends: list[Backend]) -> None:
        """These are struck; who is started or healed is not struck any more."""
        if fault in {Fault.START, Fault.HEAL}:
            over = {backend.name for backend in backends}
            for kind, struck in self._struck.values():
                if (kind in _GONE) == (fault is Fault.START):
                    struck[:] = [each for each in struck if each.name not in over]
        self._struck[path] = (fault, list(backends))

    def end(self, path: str) -> list[Backend]:
        """For whom it is over now: whom no other event keeps in the same trouble."""
        fault, backends = self._struck.pop(path)
        same = _GONE if fault in _GONE else {fault}
        kept = {
            each.name for kind, struck in self._struck.values() if kind in same for each in struck
        }
        return [backend for backend in backends if backend.name not in kept]
